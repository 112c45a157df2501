"""The first ids that a sequence drew, where the device has them: for whoever works there before the host knows them."""

import pytest

from tests.unit.engine.llm.cuda.support import make_runner, reference, request, tokens
from voicegate.engine.llm.cuda.runner import CudaLlmRunner
from voicegate.engine.model.config import PenaltySamplingConfig

pytestmark = pytest.mark.unit

SEED = 47  # no end among its first


def ids(runner: CudaLlmRunner, sequence_id: int = 0) -> list[int] | None:
    found = runner.first_ids(sequence_id)
    return None if found is None else found.tolist()


def test_they_are_what_is_told_later() -> None:
    runner = make_runner(max_in_flight=3)
    runner.add(request(7, seed=3, max_tokens=20))
    runner.step([7])  # so that the other's slot is not the first
    wanted = request(0, seed=SEED, max_tokens=20)
    runner.add(wanted)
    assert ids(runner) is None
    steps = [runner.launch([0]) for _ in range(3)]
    expected = tokens(reference(wanted))
    assert ids(runner) == expected[:3], "of all that were launched"
    told = [token for step in steps for output in step.outputs() for token in output.tokens]
    assert told == expected[:3]
    assert ids(runner) == expected[:3]


def test_as_long_as_all_of_them_are_kept() -> None:
    runner = make_runner(max_in_flight=1)
    runner.add(request(0, seed=SEED, num_text=6, max_tokens=30))
    window = runner.body.draws.window
    expected = tokens(reference(request(0, seed=SEED, num_text=6, max_tokens=30)))
    for number in range(window):
        runner.step([0])
        assert ids(runner) == expected[: number + 1]
    runner.step([0])
    assert ids(runner) is None


def test_not_of_who_is_gone_nor_of_streamed_text() -> None:
    runner = make_runner()
    runner.add(request(0))
    runner.step([0])
    runner.abort(0)
    runner.add(request(1, is_streaming=True, num_text=16))
    runner.step([1])
    assert ids(runner) is None
    assert ids(runner, 1) is None


def test_another_sampling_keeps_no_order() -> None:
    runner = make_runner(sampling=PenaltySamplingConfig())
    runner.add(request(0))
    runner.step([0])
    assert ids(runner) is None
