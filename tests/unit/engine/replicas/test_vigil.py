"""A loop that stays awake for one who is alone: not for longer than that takes, and not where cores are short."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from tests.support.replicas import RoutedEngine
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.interface import AudioReady, UtteranceId, UtteranceRequest
from voicegate.engine.replicas import routing, vigil
from voicegate.engine.replicas.vigil import Vigil

pytestmark = pytest.mark.unit


class _Watched(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.num_sleeps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.num_sleeps += timeout is None or timeout > 0
        return super().select(timeout)


def _run(work: Callable[[_Watched], Coroutine[None, None, None]]) -> None:
    selector = _Watched()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(work(selector))


def test_a_loop_does_not_sleep_while_it_is_kept_awake_and_does_behind_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigil, "_LONGEST_S", PATIENCE_S)  # a busy machine is later than it is kept awake for

    async def work(selector: _Watched) -> None:
        kept = Vigil(num_cores=16)
        kept.begin()
        kept.begin()  # once more changes only until when
        selector.num_sleeps = 0
        await asyncio.sleep(0.005)
        assert (selector.num_sleeps, kept.is_kept) == (0, True)
        kept.end()
        async with asyncio.timeout(PATIENCE_S):
            # A busy machine may be too late to sleep for so short a time.
            while not selector.num_sleeps:  # noqa: ASYNC110 - a selector tells nobody
                await asyncio.sleep(0.005)
        assert not kept.is_kept

    _run(work)


def test_who_comes_to_no_end_keeps_nobody_awake_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigil, "_LONGEST_S", 0.005)

    async def work(selector: _Watched) -> None:
        kept = Vigil(num_cores=16)
        kept.begin()
        await until(lambda: not kept.is_kept)

    _run(work)


def test_no_core_is_taken_where_there_are_few() -> None:
    async def work(selector: _Watched) -> None:
        kept = Vigil(num_cores=3)
        kept.begin()
        assert not kept.is_kept

    _run(work)


async def test_a_front_is_awake_for_one_utterance_until_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigil, "_LONGEST_S", PATIENCE_S)
    made: list[Vigil] = []

    def make(*, num_cores: int) -> Vigil:
        made.append(Vigil(num_cores=16))
        return made[-1]

    monkeypatch.setattr(routing, "Vigil", make)
    engine = RoutedEngine(partial(FakeEngine, Script()))
    await engine.start()
    try:
        (kept,) = made
        for number, is_kept in enumerate((True, False)):  # the second one is in company
            utterance_id = UtteranceId(f"u{number}")
            engine.submit(UtteranceRequest(utterance_id, engine.info.default_voice))
            assert kept.is_kept is is_kept
            engine.push_text(utterance_id, "One two three. ")
            engine.flush_text(utterance_id, "")
            heard = None
            while heard != utterance_id:
                event = await engine.next_event()
                heard = event.utterance_id if isinstance(event, AudioReady) else None
            await asyncio.sleep(0)
            assert not kept.is_kept
    finally:
        await engine.close()
