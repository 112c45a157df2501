"""Where an utterance's packets are made: in the caller, or elsewhere with the answer coming later."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from voicegate.engine.audio.packets import PacketEncoder, Samples, create_packet_encoder
from voicegate.engine.interface import AudioFormat


@dataclass(frozen=True, slots=True)
class Encoded:
    """Packets that one call to an Encoding made."""

    packets: tuple[bytes, ...] = ()
    num_samples: int = 0  # that the encoder has taken, silence that fills a packet among them


Answer = Callable[[Encoded], None]
TellFailure = Callable[[str], None]


class Encoding(Protocol):
    """One utterance's encoder. Every call is answered once, in the order of the calls, from any thread.

    But for one that fails: then `on_failure` is told, and nothing is answered any more.
    """

    def on_failure(self, tell: TellFailure) -> None:
        """`tell` is called with the reason, once and from any thread; at once if the encoder has failed already."""

    def encode(self, samples: Samples, answer: Answer) -> None:
        """Samples [n] at SAMPLE_RATE_HZ; answered with the packets that they complete."""

    def flush(self, answer: Answer) -> None:
        """Complete the packet that is begun, if any, with silence."""

    def finish(self, answer: Answer) -> None:
        """The rest; nothing may follow but `close`."""

    def close(self) -> None:
        """Nobody waits for answers any more; some may still come. Idempotent."""


class Encoders(Protocol):
    @property
    def unready_reason(self) -> str | None:
        """Why what is opened now would fail; None: it would not. From any thread."""

    @property
    def counters(self) -> Mapping[str, float]:
        """Numbers that only grow, from any thread."""

    def open(self, audio: AudioFormat) -> Encoding:
        """Returns at once. Raises Unsupported for a format that this build cannot make."""

    def close(self) -> None:
        """Returns when every call has been answered, or has failed."""


class LocalEncoding:
    """Encodes in the caller and answers before it returns."""

    def __init__(self, encoder: PacketEncoder) -> None:
        self._encoder = encoder
        self._tell_failure: TellFailure = lambda _: None
        self._failure: str | None = None

    def on_failure(self, tell: TellFailure) -> None:
        self._tell_failure = tell
        if self._failure is not None:
            tell(self._failure)

    def encode(self, samples: Samples, answer: Answer) -> None:
        self._answer(answer, lambda: (self._encoder.encode(samples), len(samples)))

    def flush(self, answer: Answer) -> None:
        self._answer(answer, self._encoder.flush)

    def finish(self, answer: Answer) -> None:
        self._answer(answer, lambda: (self._encoder.finish(), 0))

    def close(self) -> None:
        pass

    def _answer(self, answer: Answer, make: Callable[[], tuple[list[bytes], int]]) -> None:
        if self._failure is not None:
            return
        try:
            packets, num_samples = make()
        except Exception as error:  # noqa: BLE001 - fails this utterance alone
            self._failure = repr(error)
            self._tell_failure(self._failure)
            return
        answer(Encoded(tuple(packets), num_samples))


class LocalEncoders:
    unready_reason: str | None = None

    def __init__(self) -> None:
        self.counters: Mapping[str, float] = {}

    def open(self, audio: AudioFormat) -> LocalEncoding:
        return LocalEncoding(create_packet_encoder(audio))

    def close(self) -> None:
        pass
