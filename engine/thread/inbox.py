"""Commands on their way into the engine's thread: who fills it never waits, and who empties it takes portions.

An envelope is all that has come for one utterance, in order, until the engine's thread takes it: text in many small
pieces is one command. A cancel has its envelope go before all others. How much may be in one is its sender's business.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from voicegate.engine.interface import ListenerReport, UtteranceId
from voicegate.engine.thread.driven import DrivenCore

Command = Callable[[DrivenCore], object]


@dataclass(frozen=True, slots=True)
class _Push:
    utterance_id: UtteranceId
    texts: list[str]

    def __call__(self, core: DrivenCore) -> None:
        core.push_text(self.utterance_id, "".join(self.texts))


@dataclass(frozen=True, slots=True)
class _Note:
    utterance_id: UtteranceId
    report: ListenerReport

    def __call__(self, core: DrivenCore) -> None:
        core.note_listener(self.utterance_id, self.report)


@dataclass(slots=True, eq=False)
class _Envelope:
    utterance_id: UtteranceId | None
    commands: list[Command] = field(default_factory=list)
    is_opening: bool = False  # the utterance begins with it
    last: "_Envelope | None" = None  # of its name, when this one opened
    is_taken: bool = False


class Inbox:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # over all that follows, but for the bell
        self._envelopes: deque[_Envelope] = deque()
        self._urgent: deque[_Envelope] = deque()
        self._open: dict[UtteranceId, _Envelope] = {}  # not taken yet
        self.is_closed = False
        self._bell = _Bell()

    # --- from any thread --------------------------------------------------------------------------------------

    def put(self, command: Command) -> None:
        """Puts a command of no utterance: after all that has come before."""
        with self._lock:
            self._envelopes.append(_Envelope(None, [command]))
        self._bell.ring()

    def open(self, utterance_id: UtteranceId, command: Command) -> None:
        """An utterance's first. What still waits for one of its name, which has ended, stays apart and ahead."""
        with self._lock:
            last = self._open.pop(utterance_id, None)
            envelope = self._envelope(utterance_id)
            envelope.is_opening, envelope.last = True, last
            envelope.commands.append(command)
        self._bell.ring()

    def add(self, utterance_id: UtteranceId, command: Command) -> None:
        with self._lock:
            self._envelope(utterance_id).commands.append(command)
        self._bell.ring()

    def push(self, utterance_id: UtteranceId, text: str) -> None:
        with self._lock:
            commands = self._envelope(utterance_id).commands
            last = commands[-1] if commands else None
            if isinstance(last, _Push):
                last.texts.append(text)
            else:
                commands.append(_Push(utterance_id, [text]))
        self._bell.ring()

    def note(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        """In place of one that has not been taken: only the last counts."""
        with self._lock:
            commands = self._envelope(utterance_id).commands
            if commands and isinstance(commands[-1], _Note):
                commands.pop()
            commands.append(_Note(utterance_id, report))
        self._bell.ring()

    def cancel(self, utterance_id: UtteranceId, command: Command) -> str | None:
        """Before all others, behind what has come for its utterance.

        An utterance of which the engine's thread has not heard yet is taken back, with its text, which is returned.
        """
        with self._lock:
            envelope = self._envelope(utterance_id)
            if envelope.is_opening:
                self._take(envelope)
                if envelope.last is not None and not envelope.last.is_taken:
                    self._open[utterance_id] = envelope.last  # what comes for its name now is behind that
                return "".join(text for push in envelope.commands if isinstance(push, _Push) for text in push.texts)
            envelope.commands.append(command)
            self._urgent.append(envelope)
        self._bell.ring()
        return None

    def wake(self) -> None:
        """Wakes a waiting `take`, which looks at something else."""
        self._bell.ring()

    @property
    def is_empty(self) -> bool:
        return not (self._urgent or self._envelopes)

    def close(self) -> None:
        """Nothing is taken any more."""
        self.is_closed = True
        self._bell.ring()

    # --- from the engine's thread -----------------------------------------------------------------------------

    def take(self, wait_s: float | None) -> list[Command]:
        """The next envelope's, waiting up to `wait_s` (None: for ever) for one or for `wake`; empty: there is none."""
        if wait_s != 0.0 and not self._urgent and not self._envelopes:
            self._bell.wait(wait_s)
        if self.is_closed or not (self._urgent or self._envelopes):
            return []
        with self._lock:
            while self._urgent or self._envelopes:
                envelope = (self._urgent or self._envelopes).popleft()
                if not envelope.is_taken:
                    self._take(envelope)
                    return envelope.commands
        return []

    def _envelope(self, utterance_id: UtteranceId) -> _Envelope:
        envelope = self._open.get(utterance_id)
        if envelope is None:
            envelope = self._open[utterance_id] = _Envelope(utterance_id)
            self._envelopes.append(envelope)
        return envelope

    def _take(self, envelope: _Envelope) -> None:
        envelope.is_taken = True
        name = envelope.utterance_id
        if name is not None and self._open.get(name) is envelope:
            del self._open[name]


class _Bell:
    """Wakes one thread. Not a Condition, whose Python is run under the interpreter's lock twice a step: it doubled the
    time of every call to the GPU's driver, each of which gives that lock away (docs/adr/0004)."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()
        self._is_rung = False  # so that nothing gathers while nobody waits

    def ring(self) -> None:
        """Behind what there is to see. Two who ring at once may leave it rung once too often, never too seldom."""
        if not self._is_rung:
            self._is_rung = True
            self._queue.put(None)

    def wait(self, wait_s: float | None) -> None:
        """Returns when it is rung, or was since the last wait."""
        with suppress(Empty):
            self._queue.get(timeout=wait_s)
            self._is_rung = False  # before the caller looks: who rings now is seen by that look, or rings anew
