"""A kernel that gives other bits than all others is found before anybody uses it."""

import pytest

from tests.unit.engine.llm.cuda.support import make_runner
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.graphs import Call
from voicegate.engine.llm.cuda.resident.checking import first_difference
from voicegate.engine.llm.cuda.runner import CudaLlmRunner

pytestmark = pytest.mark.unit


@pytest.fixture
def runner() -> CudaLlmRunner:
    return make_runner(max_positions=96)


def give_feed_alone(body: DecoderBody, *, wrong_from: int | None = None, is_cache_wrong: bool = False) -> None:
    """What `feed_alone` does without its kernel, and from a position on something else."""

    def feed_alone() -> None:
        body.run(1)
        body.score(1)
        _, slot, position, _ = body.layout.lines(body.work.numpy(), 1)[0].tolist()
        if wrong_from is not None and position >= wrong_from:
            changed = body.cache[0, 1, slot, 0, position] if is_cache_wrong else body.scores[0]
            changed[3] += 1e-4

    body.feed_alone = feed_alone  # type: ignore[method-assign]


def test_equal_bits_are_no_difference(runner: CudaLlmRunner) -> None:
    give_feed_alone(runner.body)
    assert first_difference(runner.body) is None


@pytest.mark.parametrize("is_cache_wrong", [False, True], ids=["scores", "keys and values"])
def test_the_first_position_that_differs_is_told(runner: CudaLlmRunner, *, is_cache_wrong: bool) -> None:
    give_feed_alone(runner.body, wrong_from=2, is_cache_wrong=is_cache_wrong)
    assert first_difference(runner.body) == 77


def test_a_kernel_that_differs_is_not_used_and_the_log_says_so(
    runner: CudaLlmRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    body = runner.body
    body._resident = lambda: None
    give_feed_alone(body, wrong_from=0)
    assert body.can_step_alone
    runner.buckets._pad((Call.STEP_ALONE, 1))
    assert not body.can_step_alone
    assert "resident_step_differs" in capsys.readouterr().out
    runner.buckets._work((Call.STEP_ALONE, 1))  # of the capture that follows: nothing
