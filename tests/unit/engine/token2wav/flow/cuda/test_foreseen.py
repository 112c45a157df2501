"""A block that was made ready before its last tokens came is, bit by bit, the block that was not."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.support.flow import drain, make_runner, make_tokens, render_ready
from tests.unit.engine.token2wav.flow.cuda.support import DRAWS, EAGER, NUM_FIRST, TOKENS, opened
from voicegate.engine.device.lanes import Expected
from voicegate.engine.token2wav.flow.cuda.buffers import BatchBuffers
from voicegate.engine.token2wav.flow.runner import FlowRunner
from voicegate.engine.token2wav.flow.stream import BlockStream

pytestmark = pytest.mark.unit


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every batch that is made ready, foreseen or not."""
    stage, seen = BatchBuffers.stage, []

    def noted(self: BatchBuffers, view: object, streams: list[BlockStream], *rest: object) -> object:
        seen.append(len(streams))
        return stage(self, view, streams, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(BatchBuffers, "stage", noted)
    return seen


def first_block(between: Callable[[FlowRunner, BlockStream], None] = lambda *_: None, **options: int) -> torch.Tensor:
    runner = make_runner(cuda=replace(EAGER, **options))  # type: ignore[arg-type]
    stream = opened(runner)
    stream.append(TOKENS[: NUM_FIRST - 4])
    between(runner, stream)
    stream.append(TOKENS[NUM_FIRST - 4 : NUM_FIRST])
    return drain(runner, stream)


def test_only_its_tokens_are_missing(staged: list[int]) -> None:
    runner = make_runner(cuda=EAGER)
    stream = opened(runner)
    stream.append(TOKENS[: NUM_FIRST - 4])
    staged.clear()
    runner.foresee(stream)
    stream.append(TOKENS[NUM_FIRST - 4 : NUM_FIRST - 2])
    runner.foresee(stream)
    assert staged == [1]
    stream.append(TOKENS[NUM_FIRST - 2 : NUM_FIRST])
    mel = drain(runner, stream)
    assert staged == [1], "nothing is made ready twice"
    assert mel.shape == (80, 20)
    assert torch.equal(mel, first_block())


def test_so_is_a_later_block() -> None:
    mels = []
    for foresees in (False, True):
        runner = make_runner(cuda=EAGER)
        stream = opened(runner)
        stream.append(TOKENS[:20])
        first = drain(runner, stream)
        if foresees:
            runner.foresee(stream)
        stream.append(TOKENS[20:])
        mels.append(torch.cat((first, drain(runner, stream)), dim=1))
    assert torch.equal(*mels)


def others_first(runner: FlowRunner, _: BlockStream) -> None:
    other = opened(runner, seed=1)
    other.append(make_tokens(40, seed=1))
    render_ready(runner, [other])


def in_company(runner: FlowRunner, stream: BlockStream) -> None:
    runner.foresee(stream)
    others_first(runner, stream)


def twice(runner: FlowRunner, stream: BlockStream) -> None:
    runner.foresee(stream)
    runner.foresee(stream)


def of_another_that_closes(runner: FlowRunner, _: BlockStream) -> None:
    other = opened(runner, seed=1)
    runner.foresee(other)
    runner.close(other)


@pytest.mark.parametrize("between", [in_company, twice, of_another_that_closes])
@pytest.mark.parametrize("max_batches", [1, 2])
def test_whatever_comes_between_it_is_the_same(
    between: Callable[[FlowRunner, BlockStream], None], max_batches: int
) -> None:
    assert torch.equal(first_block(between, max_batches=max_batches), first_block(max_batches=max_batches))


@pytest.mark.parametrize("draws", [pytest.param(None, id="made ready"), pytest.param(DRAWS, id="begun early")])
def test_speech_that_ends_before_its_block_is_whole(draws: Expected | None) -> None:
    mels = []
    for foresees in (False, True):
        runner = make_runner(cuda=EAGER)
        stream = opened(runner)
        stream.append(TOKENS[:7])
        if foresees:
            assert runner.foresee(stream, draws) is (draws is not None)
        stream.finish()
        mels.append(drain(runner, stream))
    assert mels[0].shape == (80, 14)
    assert torch.equal(*mels)


def test_where_all_batches_run_nothing_is_made_ready(staged: list[int]) -> None:
    runner = make_runner(cuda=replace(EAGER, max_batches=1))
    other, stream = opened(runner, seed=1), opened(runner)
    other.append(TOKENS)
    batch = runner.begin([other])
    staged.clear()
    runner.foresee(stream)
    assert staged == []
    while not batch.advance():
        pass
    assert batch.result()[0].isfinite().all()


@pytest.mark.parametrize("how", ["finish", "close"])
def test_nor_for_whoever_has_ended(how: str, staged: list[int]) -> None:
    runner = make_runner(cuda=EAGER)
    stream = opened(runner)
    staged.clear()
    stream.finish() if how == "finish" else runner.close(stream)
    runner.foresee(stream)
    assert staged == []


@pytest.mark.parametrize("draws", [pytest.param(None, id="made ready"), pytest.param(DRAWS, id="begun early")])
def test_a_batch_of_others_that_holds_the_foreseen_one_too(draws: Expected | None) -> None:
    rendered = []
    for foresees in (False, True):
        runner = make_runner(cuda=EAGER)
        streams = [opened(runner, seed=seed) for seed in range(2)]
        if foresees:
            assert runner.foresee(streams[1], draws) is (draws is not None)
        for stream in streams:
            stream.append(TOKENS[:NUM_FIRST])
        rendered.append(render_ready(runner, streams))
    for alone, foreseen in zip(*rendered, strict=True):
        assert torch.equal(alone, foreseen)
