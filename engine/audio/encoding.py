"""Where an utterance's packets are made: in the caller, or elsewhere with the answer coming later."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from voicegate.engine.audio.packets import PacketEncoder, Samples, create_packet_encoder
from voicegate.engine.interface import AudioFormat


@dataclass(frozen=True, slots=True)
class Encoded:
    """What one call to an Encoding made. `error`: it and the encoder have failed."""

    packets: tuple[bytes, ...] = ()
    num_samples: int = 0  # that the encoder has taken, silence that fills a packet among them
    error: str | None = None


Answer = Callable[[Encoded], None]


class Encoding(Protocol):
    """One utterance's encoder. Every call is answered once, in the order of the calls, from any thread."""

    def encode(self, samples: Samples, answer: Answer) -> None:
        """Samples [n] at SAMPLE_RATE_HZ; answered with the packets that they complete."""

    def flush(self, answer: Answer) -> None:
        """Complete the packet that is begun, if any, with silence."""

    def finish(self, answer: Answer) -> None:
        """The rest; nothing may follow but `close`."""

    def close(self) -> None:
        """Nobody waits for answers any more; some may still come. Idempotent."""


class Encoders(Protocol):
    def open(self, audio: AudioFormat) -> Encoding:
        """Raises Unsupported for a format that this build cannot make."""

    def close(self) -> None:
        """Returns when every call has been answered."""


class LocalEncoding:
    """Encodes in the caller and answers before it returns."""

    def __init__(self, encoder: PacketEncoder) -> None:
        self._encoder = encoder
        self._has_samples = False

    def encode(self, samples: Samples, answer: Answer) -> None:
        self._has_samples = True
        answer(Encoded(tuple(self._encoder.encode(samples)), len(samples)))

    def flush(self, answer: Answer) -> None:
        packets, num_padding = self._encoder.flush()
        answer(Encoded(tuple(packets), num_padding))

    def finish(self, answer: Answer) -> None:
        answer(Encoded(tuple(self._encoder.finish()) if self._has_samples else ()))

    def close(self) -> None:
        pass


class LocalEncoders:
    def __init__(self, *, opus_complexity: int) -> None:
        self._opus_complexity = opus_complexity

    def open(self, audio: AudioFormat) -> LocalEncoding:
        return LocalEncoding(create_packet_encoder(audio, opus_complexity=self._opus_complexity))

    def close(self) -> None:
        pass
