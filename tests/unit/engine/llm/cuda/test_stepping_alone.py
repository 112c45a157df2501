"""Which launches a lone decode's own kernel is used for. That it has the same bits is for tests/gpu to see."""

import numpy as np
import pytest

from tests.unit.engine.llm.cuda.support import make_runner, request
from voicegate.engine.llm.cuda import device_queue
from voicegate.engine.llm.cuda.device_queue import DeviceQueue
from voicegate.engine.llm.cuda.packing import USE_LAST_TOKEN, Words
from voicegate.engine.llm.cuda.runner import CudaLlmRunner

pytestmark = pytest.mark.unit


@pytest.fixture
def runner() -> CudaLlmRunner:
    return make_runner(num_slots=4)


def runs_alone(runner: CudaLlmRunner, lines: Words, num_samples: int, *, has_device: bool, can: bool = True) -> bool:
    """Whether a send of these goes to the kernel, in whose place nothing is done here."""
    body, used = runner.body, []
    body._resident = (lambda: None) if can else None
    body.step_alone = lambda: used.append(True)  # type: ignore[method-assign]
    queue = DeviceQueue(body, runner.buckets, is_cuda=False)
    samples = np.zeros((num_samples, 8), np.int32)
    queue.send(lines, samples, has_device=has_device)
    return bool(used)


def decode(position: int, slot: int = 0) -> list[int]:
    return [USE_LAST_TOKEN, slot, position, 0]


def words(*lines: list[int]) -> Words:
    return np.array(lines, np.int32)


def test_a_lone_decode_takes_a_device_that_nobody_else_has(runner: CudaLlmRunner) -> None:
    assert runs_alone(runner, words(decode(5)), 1, has_device=True)


@pytest.mark.parametrize(
    ("lines", "num_samples"),
    [
        (words(decode(5), decode(5, slot=1)), 2),
        (words([7, 0, 5, 0]), 1),
        (words(decode(5)), 0),
    ],
    ids=["two", "one that is fed", "one that draws nothing"],
)
def test_others_do_not(runner: CudaLlmRunner, lines: Words, num_samples: int) -> None:
    assert not runs_alone(runner, lines, num_samples, has_device=True)


def test_nor_one_behind_more_keys_than_it_takes(runner: CudaLlmRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_queue, "MAX_KEYS", 5)
    assert runs_alone(runner, words(decode(5)), 1, has_device=True)
    assert not runs_alone(runner, words(decode(6)), 1, has_device=True)


def test_nor_beside_others_nor_where_it_cannot_be(runner: CudaLlmRunner) -> None:
    assert not runs_alone(runner, words(decode(5)), 1, has_device=False)
    assert not runs_alone(runner, words(decode(5)), 1, has_device=True, can=False)


def test_a_cpus_runner_cannot(runner: CudaLlmRunner) -> None:
    assert not runner.body.can_step_alone
    runner.add(request(0))
    assert runner.launch([0], has_device=True).outputs()
