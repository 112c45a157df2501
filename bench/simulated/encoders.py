"""Encoders that make 16-bit silence in no time: the engine's thread only hands samples to a process that encodes."""

from collections.abc import Mapping

from voicegate.engine.audio.encoding import Answer, Encoded, TellFailure
from voicegate.engine.audio.packets import Samples
from voicegate.engine.interface import AudioFormat
from voicegate.engine.units import ms_to_samples


class _Silence:
    def __init__(self, frame_ms: int) -> None:
        self._packet = bytes(2 * ms_to_samples(frame_ms))
        self._num_pending = 0  # samples of the packet that is begun

    def on_failure(self, tell: TellFailure) -> None:
        """It has none."""

    def encode(self, samples: Samples, answer: Answer) -> None:
        num_packets, self._num_pending = divmod(self._num_pending + len(samples), len(self._packet) // 2)
        answer(Encoded((self._packet,) * num_packets, len(samples)))

    def flush(self, answer: Answer) -> None:
        self.finish(answer)

    def finish(self, answer: Answer) -> None:
        rest = (self._packet[: 2 * self._num_pending],) if self._num_pending else ()
        self._num_pending = 0
        answer(Encoded(rest))

    def close(self) -> None:
        """It holds nothing."""


class SilentEncoders:
    unready_reason: str | None = None
    counters: Mapping[str, float] = {}

    def open(self, audio: AudioFormat) -> _Silence:
        return _Silence(audio.frame_ms)

    def close(self) -> None:
        """It holds nothing."""
