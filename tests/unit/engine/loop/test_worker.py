"""An engine whose start is given up: by a signal, say, while the models load."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from voicegate.engine.audio.outlet import Sink
from voicegate.engine.device.watcher import Waker
from voicegate.engine.interface import EngineError, EngineInfo
from voicegate.engine.loop.core import EngineCore
from voicegate.engine.loop.worker import LoadedEngine, ThreadedEngine

pytestmark = pytest.mark.unit

_PATIENCE_S = 20.0


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_start_that_nobody_waits_for_any_more_ends_quietly(is_failing: bool) -> None:
    begun, released = threading.Event(), threading.Event()
    ends: list[str] = []

    def load(_sink: Sink, _waker: Waker) -> LoadedEngine:
        begun.set()
        assert released.wait(_PATIENCE_S)
        if is_failing:
            raise EngineError("no such model")
        core = SimpleNamespace(fail_all=lambda _: ends.append("utterances failed"))
        return LoadedEngine(
            cast(EngineCore, core), cast(EngineInfo, SimpleNamespace()), close=lambda: ends.append("closed")
        )

    async def give_up() -> list[dict[str, Any]]:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        engine = ThreadedEngine(load)
        start = asyncio.create_task(engine.start())
        await asyncio.to_thread(begun.wait, _PATIENCE_S)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        released.set()
        await engine.close()
        await asyncio.sleep(0)
        return complaints

    assert asyncio.run(give_up()) == []
    assert ends == ([] if is_failing else ["utterances failed", "closed"])
