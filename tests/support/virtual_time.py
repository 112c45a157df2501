"""An event loop whose time is told and not waited for: it jumps to the next timer whenever nothing is left to do."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Nothing real is waited for, so that waiting is all in the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: no timer is set")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def spend(self, spent_s: float) -> None:
        """Has the running work take so long."""
        self._jumping.now_s += spent_s

    def call_exception_handler(self, context: Mapping[str, Any]) -> None:
        raise RuntimeError(context["message"]) from context.get("exception")


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """For code without threads and sockets."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
