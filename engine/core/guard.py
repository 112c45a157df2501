"""The guard: all work for an utterance is done in it, so that one utterance's failure never touches another."""

from collections.abc import Callable, Sequence
from types import TracebackType

from voicegate.engine.core.utterance import Utterance


class Guard:
    """`with Guard(fail, utterances):` what goes wrong inside ends these utterances, and nothing else.

    Where several share a step, it may be the fault of any. A class, not a generator: thousands are entered a
    second, on the thread that a GPU waits for.
    """

    __slots__ = ("_fail", "_utterances")

    def __init__(self, fail: Callable[[Sequence[Utterance], Exception], None], utterances: Sequence[Utterance]) -> None:
        self._fail = fail
        self._utterances = utterances

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._fail(self._utterances, error)
        return True
