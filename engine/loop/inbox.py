"""Commands on their way into the engine's thread: who fills it never waits, and who empties it takes portions.

An envelope is all that has come for one utterance, in order, until the engine's thread takes it: text in many small
pieces is one command. A cancel has its envelope go before all others. How much may be in one is its sender's business.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from voicegate.engine.interface import UtteranceId
from voicegate.engine.loop.core import EngineCore

Command = Callable[[EngineCore], None]


@dataclass(frozen=True, slots=True)
class _Push:
    utterance_id: UtteranceId
    texts: list[str]

    def __call__(self, core: EngineCore) -> None:
        core.push_text(self.utterance_id, "".join(self.texts))


@dataclass(slots=True, eq=False)
class _Envelope:
    utterance_id: UtteranceId | None
    commands: list[Command] = field(default_factory=list)
    is_opening: bool = False  # the utterance begins with it
    is_taken: bool = False


class Inbox:
    def __init__(self) -> None:
        self._changed = threading.Condition()  # over all that follows
        self._envelopes: deque[_Envelope] = deque()
        self._urgent: deque[_Envelope] = deque()
        self._open: dict[UtteranceId, _Envelope] = {}  # not taken yet
        self._is_awake = False
        self._is_closed = False

    # --- from any thread --------------------------------------------------------------------------------------

    def put(self, command: Command) -> None:
        """Of no utterance: behind all that has come before."""
        with self._changed:
            self._envelopes.append(_Envelope(None, [command]))
            self._changed.notify()

    def open(self, utterance_id: UtteranceId, command: Command) -> None:
        """An utterance's first."""
        with self._changed:
            envelope = self._envelope(utterance_id)
            envelope.is_opening = True
            envelope.commands.append(command)

    def add(self, utterance_id: UtteranceId, command: Command) -> None:
        with self._changed:
            self._envelope(utterance_id).commands.append(command)

    def push(self, utterance_id: UtteranceId, text: str) -> None:
        with self._changed:
            commands = self._envelope(utterance_id).commands
            last = commands[-1] if commands else None
            if isinstance(last, _Push):
                last.texts.append(text)
            else:
                commands.append(_Push(utterance_id, [text]))

    def cancel(self, utterance_id: UtteranceId, command: Command) -> str | None:
        """Before all others, behind what has come for its utterance.

        An utterance of which the engine's thread has not heard yet is taken back, with its text, which is returned.
        """
        with self._changed:
            envelope = self._envelope(utterance_id)
            if envelope.is_opening:
                self._take(envelope)
                return "".join(text for push in envelope.commands if isinstance(push, _Push) for text in push.texts)
            envelope.commands.append(command)
            self._urgent.append(envelope)
            return None

    def wake(self) -> None:
        """Whoever waits in `take` looks at something else."""
        with self._changed:
            self._is_awake = True
            self._changed.notify()

    def close(self) -> None:
        """Nothing is taken any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    # --- from the engine's thread -----------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def take(self, wait_s: float | None) -> list[Command]:
        """The next envelope, waiting up to `wait_s` (None: for ever) for one or for `wake`; empty: there is none."""
        with self._changed:
            if wait_s != 0.0:
                self._changed.wait_for(self._has_come, wait_s)
            self._is_awake = False
            while not self._is_closed and (self._urgent or self._envelopes):
                envelope = (self._urgent or self._envelopes).popleft()
                if not envelope.is_taken:
                    self._take(envelope)
                    return envelope.commands
            return []

    def _has_come(self) -> bool:
        return bool(self._urgent or self._envelopes or self._is_awake or self._is_closed)

    def _envelope(self, utterance_id: UtteranceId) -> _Envelope:
        envelope = self._open.get(utterance_id)
        if envelope is None:
            envelope = self._open[utterance_id] = _Envelope(utterance_id)
            self._envelopes.append(envelope)
            self._changed.notify()
        return envelope

    def _take(self, envelope: _Envelope) -> None:
        envelope.is_taken = True
        if envelope.utterance_id is not None:
            del self._open[envelope.utterance_id]
