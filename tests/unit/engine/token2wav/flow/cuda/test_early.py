"""A block begun before the host knew its tokens is, bit by bit, the block that was not; or it is begun anew."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.support.flow import drain, make_prompt, make_runner, make_tokens, render_ready
from tests.unit.engine.token2wav.flow.cuda.support import DRAWS, EAGER, NUM_FIRST, TOKENS, opened
from voicegate.engine.device.lanes import HOST_LANE, Expected, Mark
from voicegate.engine.token2wav.flow.cuda.solver import CudaSolver, Pass
from voicegate.engine.token2wav.flow.runner import FlowRunner
from voicegate.engine.token2wav.flow.stream import BlockStream

pytestmark = pytest.mark.unit

IDS = DRAWS.tensor
NUM_STEPS = 10


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Pass]:
    """Of all solvers."""
    work, seen = CudaSolver._work, []

    def noted(self: CudaSolver, key: tuple[object, Pass]) -> None:
        seen.append(key[1])
        work(self, key)  # type: ignore[arg-type]

    monkeypatch.setattr(CudaSolver, "_work", noted)
    return seen


Between = Callable[[FlowRunner, BlockStream, BlockStream], None]


def no_more(*_: object) -> None:
    pass


def first_block(
    draws: Expected | None,
    between: Between = no_more,
    *,
    max_batches: int = 2,
    num_blocks: int = 40,
) -> torch.Tensor:
    """Begun early by these draws, if there are some. `between`: is given another stream, too, with 40 tokens."""
    runner = make_runner(cuda=replace(EAGER, max_batches=max_batches), num_blocks=num_blocks)
    stream, other = opened(runner), opened(runner, seed=1)
    other.append(make_tokens(40, seed=1))
    stream.append(TOKENS[:6])
    room = runner.num_free_blocks, runner.num_free_batches
    if draws is not None:
        assert runner.foresee(stream, draws) is (len(draws.tensor) == NUM_FIRST)
    assert (runner.num_free_blocks, runner.num_free_batches) == room, "what was begun early makes way"
    between(runner, stream, other)
    runner.close(other)
    stream.append(TOKENS[6:NUM_FIRST])
    mel = drain(runner, stream)
    runner.close(stream)
    assert runner.num_free_batches == max_batches
    return mel


def test_all_but_its_last_step_is_under_way_when_its_tokens_come(launched: list[Pass]) -> None:
    late = first_block(None)
    launched.clear()
    steps_so_far: list[int] = []
    early = first_block(DRAWS, lambda *_: steps_so_far.append(launched.count(Pass.STEP)))
    num_of_prompt = launched.count(Pass.STEP) - NUM_STEPS
    assert steps_so_far == [num_of_prompt + NUM_STEPS - 1]
    assert early.shape == (80, 20)
    assert torch.equal(early, late)


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param((IDS + (torch.arange(NUM_FIRST) == 7)) % 10, id="others"),
        pytest.param(torch.where(torch.arange(NUM_FIRST) == 5, 1_000_000, IDS).int(), id="an end"),
        pytest.param(torch.where(torch.arange(NUM_FIRST) == 5, -7, IDS).int(), id="below zero"),
    ],
)
def test_where_other_tokens_were_drawn_it_is_begun_anew(ids: torch.Tensor, launched: list[Pass]) -> None:
    late = first_block(None)
    num_late = launched.count(Pass.STEP)
    launched.clear()
    assert torch.equal(first_block(Expected(ids, HOST_LANE.mark())), late)
    assert launched.count(Pass.STEP) == num_late + NUM_STEPS - 1


@pytest.mark.parametrize("num_draws", [NUM_FIRST - 1, NUM_FIRST + 1])
def test_only_all_that_it_takes_will_do(num_draws: int, launched: list[Pass]) -> None:
    late = first_block(None)
    num_late = launched.count(Pass.STEP)
    launched.clear()
    assert torch.equal(
        first_block(Expected(torch.tensor(TOKENS[:num_draws], dtype=torch.int32), HOST_LANE.mark())), late
    )
    assert launched.count(Pass.STEP) == num_late


def another_renders(runner: FlowRunner, _: BlockStream, other: BlockStream) -> None:
    (mel,) = render_ready(runner, [other])
    assert mel.isfinite().all()


def another_is_foreseen(runner: FlowRunner, _: BlockStream, other: BlockStream) -> None:
    runner.foresee(other, DRAWS)


def foreseen_again(runner: FlowRunner, stream: BlockStream, _: BlockStream) -> None:
    runner.foresee(stream, DRAWS)
    runner.foresee(stream)


def a_voice_comes(runner: FlowRunner, _: BlockStream, other: BlockStream) -> None:
    runner.close(other)
    runner.release(other.prompt)
    runner.prepare(make_prompt(40, seed=2))


@pytest.mark.parametrize("between", [another_renders, another_is_foreseen, foreseen_again, a_voice_comes])
@pytest.mark.parametrize("max_batches", [1, 2])
@pytest.mark.parametrize("num_blocks", [3, 40])
def test_whatever_comes_between_it_is_the_same(between: Between, max_batches: int, num_blocks: int) -> None:
    """Also where the other's block is the last of all."""
    late = first_block(None)
    assert torch.equal(first_block(DRAWS, between, max_batches=max_batches, num_blocks=num_blocks), late)


def test_who_goes_leaves_nothing_behind() -> None:
    runner = make_runner(cuda=EAGER)
    stream = opened(runner)
    num_blocks = runner.num_free_blocks
    runner.foresee(stream, DRAWS)
    runner.close(stream)
    runner.close(stream)
    assert (runner.num_free_blocks, runner.num_free_batches) == (num_blocks, 2)
    other = opened(runner)
    other.append(TOKENS[:NUM_FIRST])
    assert torch.equal(drain(runner, other), first_block(None))


def test_who_leaves_a_batch_that_was_begun_early_leaves_nothing_behind_either() -> None:
    runner = make_runner(cuda=EAGER)
    stream = opened(runner)
    num_blocks = runner.num_free_blocks
    runner.foresee(stream, DRAWS)
    stream.append(TOKENS[:NUM_FIRST])
    batch = runner.begin([stream])
    batch.advance()
    runner.close(stream)
    assert batch.is_done
    assert (runner.num_free_blocks, runner.num_free_batches) == (num_blocks, 2)


class LateMark:
    """Of another lane."""

    lane, is_reached = None, False

    def __init__(self) -> None:
        self.num_behind = 0

    def seconds_since(self, _: Mark) -> float:
        raise NotImplementedError

    def wait(self) -> None:
        raise NotImplementedError

    def precede(self) -> None:
        self.num_behind += 1


def test_only_what_is_begun_early_is_behind_the_draws() -> None:
    runner, mark = make_runner(cuda=EAGER), LateMark()
    stream = opened(runner)
    assert not runner.foresee(stream, Expected(IDS[1:], mark))
    assert not mark.num_behind
    assert runner.foresee(stream, Expected(IDS, mark))
    assert mark.num_behind == 1
    assert runner.is_begun_early(stream)


def test_what_can_be_nobodys_any_more_makes_way_for_anothers() -> None:
    runner = make_runner(cuda=EAGER)
    one, other = opened(runner), opened(runner, seed=1)
    assert runner.foresee(one, DRAWS)
    one.append(TOKENS[:5])
    assert not runner.foresee(other, DRAWS), "it is right so far"
    one.append([TOKENS[5] + 1])
    assert runner.foresee(other, DRAWS)
    assert runner.is_begun_early(other)
    assert not runner.is_begun_early(one)


def waiting(runner: FlowRunner, seed: int) -> BlockStream:
    """With 40 tokens of its own."""
    stream = opened(runner, seed=seed)
    stream.append(make_tokens(40, seed=seed))
    return stream


def alone(seed: int) -> torch.Tensor:
    runner = make_runner(cuda=EAGER)
    (mel,) = render_ready(runner, [waiting(runner, seed)])
    return mel


def test_who_makes_way_for_another_leaves_each_batch_its_own_buffers() -> None:
    """The other one was staged for the buffers that were free before the first one's came back."""
    runner = make_runner(cuda=EAGER)
    one, other = opened(runner), opened(runner, seed=1)
    assert runner.foresee(one, DRAWS)
    one.append([*TOKENS[:5], TOKENS[5] + 1])
    assert runner.foresee(other, DRAWS)
    other.append(TOKENS[:NUM_FIRST])
    early = runner.begin([other])
    beside = runner.begin([waiting(runner, 2)])
    while not early.advance():
        pass
    early.result()
    behind = runner.begin([waiting(runner, 3)])
    for _ in range(NUM_STEPS - 1):
        assert not beside.advance()
        assert not behind.advance()
    assert beside.advance()
    assert behind.advance()
    for batch, seed in ((beside, 2), (behind, 3)):
        (mel,) = batch.result()
        assert torch.equal(mel, alone(seed))
    assert runner.num_free_batches == 2


@pytest.mark.parametrize("max_batches", [1, 2])
def test_a_voices_prompt_that_has_begun_gets_its_room(max_batches: int) -> None:
    runner = make_runner(cuda=replace(EAGER, max_batches=max_batches))
    stream, other = opened(runner), opened(runner, seed=1)
    other.append(make_tokens(40, seed=1))
    rendering = runner.begin_prompt(make_prompt(60, seed=2))
    assert runner.foresee(stream, DRAWS)
    batch = runner.begin([other]) if max_batches == 2 else None
    assert rendering.takes_step
    while not rendering.advance():
        pass
    if batch is not None:
        runner.close(other)
    stream.append(TOKENS[:NUM_FIRST])
    assert torch.equal(drain(runner, stream), first_block(None))


def test_a_later_block_takes_other_tokens(launched: list[Pass]) -> None:
    runner = make_runner(cuda=EAGER)
    stream = opened(runner)
    stream.append(TOKENS[:20])
    drain(runner, stream)
    launched.clear()
    runner.foresee(stream, DRAWS)
    assert not launched
