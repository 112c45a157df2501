"""One audio message as the reader of a context gets it, and what its packets last."""

from dataclasses import dataclass

from voicegate.protocol.messages import Format
from voicegate.protocol.opus_packet import packet_duration_48k

_BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class Audio:
    """`packets` is empty in the last one, whose `pts_48k` is the exact end: a player trims what lies beyond."""

    packets: tuple[bytes, ...]  # raw Opus, or PCM
    pts_48k: int  # of the first packet, in 48 kHz samples since the context's start, Opus pre-skip counted in
    duration_48k: int
    arrived_s: float  # on the event loop's clock, when the socket delivered it
    is_first: bool = False
    is_last: bool = False

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.packets))


def duration_48k(packets: tuple[bytes, ...], audio_format: Format, sample_rate_hz: int) -> int:
    """Raises ValueError for bytes that are not what `audio_format` says."""
    if audio_format.codec == "opus":
        return sum(map(packet_duration_48k, packets))
    num_bytes = sum(map(len, packets))
    if num_bytes % _BYTES_PER_SAMPLE:
        raise ValueError(f"{num_bytes} bytes are no whole number of 16-bit samples")
    return num_bytes // _BYTES_PER_SAMPLE * 48_000 // sample_rate_hz
