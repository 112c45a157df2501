"""A context's packets -> 16-bit PCM of exactly its length: pre-skip dropped, end trimmed (RFC 7845 section 4).

Opus needs libopus and the extra `opus`; PCM contexts need nothing.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.errors import MissingDependency
from voicegate.protocol import messages as wire
from voicegate.protocol.opus_packet import packet_duration_48k

_CLOCK_HZ: Final = 48_000
_BYTES_PER_SAMPLE: Final = 2
OPUS_RATES_HZ: Final = (8_000, 12_000, 16_000, 24_000, 48_000)  # that libopus decodes to


class PcmDecoder:
    """s16le mono out. The newest packet waits for its successor, because the end may trim it."""

    def __init__(self, opened: wire.Opened, *, rate_hz: int | None = None) -> None:
        """`rate_hz`: of Opus, where another than the audio's own is wanted. Raises MissingDependency."""
        is_opus = opened.format.codec == "opus"
        self.rate_hz = opened.sample_rate if rate_hz is None else rate_hz
        if self.rate_hz not in (OPUS_RATES_HZ if is_opus else (opened.sample_rate,)):
            raise ValueError(f"audio of {opened.sample_rate} Hz {opened.format.codec} does not come at {rate_hz} Hz")
        self._opus = opus_decoder(self.rate_hz) if is_opus else None
        self._skip_bytes = self._bytes_at(opened.pre_skip)
        self._pre_skip_48k = opened.pre_skip
        self._waiting = b""
        self._num_bytes = 0  # given out, without pre-skip

    def decode(self, audio: Audio) -> bytes:
        """Decodes all that can be played now; with the last audio, the rest."""
        ready = self._waiting
        self._waiting = b""
        for packet in audio.packets:
            ready += self._waiting
            self._waiting = self._decode_packet(packet)
        if audio.is_last:
            ready += self._waiting
            self._waiting = b""
            end_bytes = self._bytes_at(audio.pts_48k + audio.duration_48k - self._pre_skip_48k)
            ready = ready[: max(0, end_bytes - self._num_bytes)]
        self._num_bytes += len(ready)
        return ready

    def finish(self) -> bytes:
        """The rest of audio that was cut short, and so has no last message."""
        rest, self._waiting = self._waiting, b""
        return rest

    def _decode_packet(self, packet: bytes) -> bytes:
        if self._opus is None:
            return packet
        num_samples = math.ceil(packet_duration_48k(packet) * self.rate_hz / _CLOCK_HZ)
        pcm: bytes = self._opus.decode(packet, num_samples)
        skipped, self._skip_bytes = self._skip_bytes, max(0, self._skip_bytes - len(pcm))
        return pcm[skipped:]

    def _bytes_at(self, position_48k: int) -> int:
        return round(position_48k * self.rate_hz / _CLOCK_HZ) * _BYTES_PER_SAMPLE


def decode_all(opened: wire.Opened, audio: Iterable[Audio], *, rate_hz: int | None = None) -> bytes:
    """Raises MissingDependency."""
    decoder = PcmDecoder(opened, rate_hz=rate_hz)
    return b"".join([*map(decoder.decode, audio), decoder.finish()])


def check_opus() -> str:
    """libopus's version. Raises MissingDependency with the remedy."""
    version: bytes = _load_opuslib().api.info.get_version_string()
    return version.decode()


def opus_decoder(rate_hz: int) -> Any:
    """libopus's, for mono. Raises MissingDependency."""
    return _load_opuslib().Decoder(rate_hz, 1)


def _load_opuslib() -> Any:
    try:
        import opuslib_next  # noqa: PLC0415 - optional, and raises on import without libopus
        import opuslib_next.api.info  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependency(
            "decoding Opus needs opuslib-next: `pip install opuslib-next`, and the libopus library"
        ) from error
    except Exception as error:  # it raises a bare Exception
        raise MissingDependency(
            "libopus is not installed: `apt-get install libopus0` (Debian, Ubuntu), `dnf install opus` (Fedora), "
            "`brew install opus` (macOS)"
        ) from error
    return opuslib_next
