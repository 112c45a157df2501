"""The beginning of an Opus turn as samples, so that silence before speech counts. Without libopus it has none."""

import array
from collections.abc import Sequence
from typing import Any, Final

from voicegate.clients.python.decode import opus_decoder
from voicegate.clients.python.errors import MissingDependency
from voicegate.protocol.opus_packet import packet_duration_48k

# -40 dBFS: below it no one hears that it has begun.
AUDIBLE_PEAK: Final = 328
_RATE_HZ: Final = 48_000


class Ear:
    """For one turn. Packets after the first audible one tell nothing more, and would cost the clients' cores."""

    def __init__(self) -> None:
        try:
            self._decoder: Any = opus_decoder(_RATE_HZ)
        except MissingDependency:
            self._decoder = None

    def hear(self, packets: Sequence[bytes]) -> bytes:
        """Samples for as long as the packets last, the codec's delay among them; b"": they need not be looked at."""
        if self._decoder is None:
            return b""
        pcm = b"".join(self._decoder.decode(packet, packet_duration_48k(packet)) for packet in packets)
        if any(abs(sample) > AUDIBLE_PEAK for sample in array.array("h", pcm)):
            self._decoder = None
        return pcm
