"""Work for an engine's thread: one core, or several with one LLM. See EngineCore for the promises."""

from collections.abc import Mapping
from typing import Protocol

from voicegate.engine.core.arrivals import Answer
from voicegate.engine.core.policy import Decision
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.interface import EngineStats, ListenerReport, UtteranceId, UtteranceRequest
from voicegate.engine.voices.voice import Voice


class DrivenCore(Protocol):
    def submit(self, request: UtteranceRequest, *, seed: int) -> None: ...

    def push_text(self, utterance_id: UtteranceId, text: str) -> None: ...

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None: ...

    def end_text(self, utterance_id: UtteranceId) -> None: ...

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None: ...

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None) -> None: ...

    def fail(self, utterance_id: UtteranceId, message: str) -> None: ...

    def fail_all(self, message: str) -> None: ...

    def prepare_voice(self, voice: Voice, answer: Answer) -> None: ...

    def refuse_voices(self, reason: str, voice: Voice | None = None) -> None: ...

    def install_voice(self, ready: ReadyVoice) -> None: ...

    def discard_voice(self, ready: ReadyVoice) -> None: ...

    def remove_voice(self, name: str) -> None: ...

    def step(self) -> Decision: ...

    @property
    def is_busy(self) -> bool:
        """Whether what all need is at work on something whose result is not here."""

    @property
    def num_fetched(self) -> int:
        """Number fetched of that so far."""

    @property
    def num_submitted(self) -> int: ...

    @property
    def num_welcome(self) -> int: ...

    @property
    def counters(self) -> Mapping[str, float]: ...

    def stats(self, counters: Mapping[str, float]) -> EngineStats:
        """From any thread, for which `counters` were read in the engine's."""

    @property
    def unready_reason(self) -> str | None:
        """Why nobody new could speak. From any thread."""
