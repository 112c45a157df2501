"""Every promise of engine/llm/backend.py, once, against a stepped backend and against ones that schedule themselves.

The driver never polls in a circle: where there is nothing to step it sleeps until it is woken.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace

import pytest

from tests.support.self_scheduling import FULL, PLAIN, SelfSchedulingLlm
from tests.support.tensorrt_llm.standin import Behaviour
from tests.unit.engine.backends.legged.support import TENSORRT_LLM, VLLM, SmallModel
from tests.unit.engine.llm.support import small_llm_config, small_state_dict
from voicegate.engine.device.lanes import Mark
from voicegate.engine.llm.backend import (
    InvalidRequest,
    LlmBackend,
    LlmPrompt,
    NoFreeSlot,
    SequenceOutput,
    SequenceRequest,
)
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.model.config import SamplingConfig

CONFIG = small_llm_config()
STATE = small_state_dict()
NUM_SLOTS = 3
_PATIENCE_S = 60.0

PROMPT = LlmPrompt((1, 2, CONFIG.end_of_prompt_id, 9, 8), (5, 6, 7))


def runner() -> TorchLlmRunner:
    return TorchLlmRunner(CONFIG, SamplingConfig(), STATE, num_slots=NUM_SLOTS, max_positions=200)


@contextmanager
def tensorrt_llm(**settings: object) -> Iterator[LlmBackend]:
    """Our backend over a stand-in for its package."""
    with TENSORRT_LLM.running(Behaviour(SmallModel(), num_responses_late=2), num_slots=NUM_SLOTS, **settings) as made:
        yield made.backend


@contextmanager
def vllm(**settings: object) -> Iterator[LlmBackend]:
    """Our backend over a stand-in for vLLM."""
    with VLLM.running(num_slots=NUM_SLOTS, **settings) as made:
        yield made.backend


BACKENDS: dict[str, Callable[[], AbstractContextManager[LlmBackend]]] = {
    "stepped": lambda: closing(runner()),
    "self-scheduling": lambda: closing(SelfSchedulingLlm(runner(), CONFIG, traits=FULL)),
    "as-tensorrt-llm": lambda: closing(SelfSchedulingLlm(runner(), CONFIG, traits=PLAIN, stream_interval=4)),
    "tensorrt-llm": lambda: tensorrt_llm(),
    "tensorrt-llm-aware": lambda: tensorrt_llm(is_repetition_aware=True, stream_interval=1, has_overlap=False),
    "vllm": lambda: vllm(),
    "vllm-nucleus": lambda: vllm(is_repetition_aware=False),
}


class Bell:
    """A waker that can be slept on."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def wake(self) -> None:
        self._rung.set()

    def watch(self, mark: Mark) -> None:
        assert mark.is_reached, "a CPU's work is done when the launch returns"

    def sleep(self) -> None:
        assert self._rung.wait(_PATIENCE_S), "nobody woke the engine"
        self._rung.clear()


class Driver:
    """Stands for the engine: steps what wants to be stepped, fetches, sleeps."""

    def __init__(self, llm: LlmBackend) -> None:
        self.llm = llm
        self.outputs: dict[int, list[SequenceOutput]] = {}
        self._bell = Bell()
        llm.set_waker(self._bell)

    def add(self, request: SequenceRequest) -> None:
        self.llm.add(request)
        self.outputs[request.sequence_id] = []

    def abort(self, sequence_id: int) -> None:
        self.llm.abort(sequence_id)
        self.outputs.pop(sequence_id, None)  # what comes late is nobody's

    def has_ended(self, sequence_id: int) -> bool:
        outputs = self.outputs[sequence_id]
        return bool(outputs) and (outputs[-1].is_final or outputs[-1].error is not None)

    def tokens(self, sequence_id: int) -> list[int]:
        return [token for output in self.outputs[sequence_id] for token in output.tokens]

    def fetch(self) -> bool:
        made = self.llm.poll()
        for output in made:
            if output.sequence_id in self.outputs:
                assert not self.has_ended(output.sequence_id), "no output follows the last one"
                assert not output.is_truncated or output.is_final
                assert all(0 <= token < CONFIG.speech_token_size for token in output.tokens)
                self.outputs[output.sequence_id].append(output)
        return bool(made)

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            runnable = [sequence_id for sequence_id in self.outputs if self.llm.is_runnable(sequence_id)]
            if runnable and self.llm.takes_step:
                self.llm.launch(runnable)
            if not self.fetch() and not runnable:
                self._bell.sleep()

    def until_end(self, *sequence_ids: int) -> None:
        self.until(lambda: all(self.has_ended(sequence_id) for sequence_id in sequence_ids))


@pytest.fixture(params=BACKENDS)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    with BACKENDS[request.param]() as llm:
        yield Driver(llm)


def request(
    sequence_id: int,
    text: Sequence[int] = (10, 11, 12, 13),
    *,
    seed: int = 1,
    is_streaming: bool = False,
    is_growing: bool = False,
    max_tokens: int | None = 12,
) -> SequenceRequest:
    return SequenceRequest(
        sequence_id,
        PROMPT,
        tuple(text),
        is_streaming=is_streaming,
        is_growing=is_growing,
        seed=seed,
        max_tokens=max_tokens,
    )


def streamed_tokens(driver: Driver, sequence_id: int, parts: Sequence[Sequence[int]]) -> list[int]:
    """All work that can be done without more text is done in between."""
    driver.add(request(sequence_id, (), is_streaming=True, max_tokens=40))
    for part in parts:
        driver.llm.push_text(sequence_id, part)
        for _ in range(5):
            if driver.llm.is_runnable(sequence_id):
                driver.llm.launch([sequence_id])
            driver.fetch()
    driver.llm.end_text(sequence_id)
    driver.until_end(sequence_id)
    return driver.tokens(sequence_id)


# --- sequences --------------------------------------------------------------------------------------------


def test_sequences_end_once_each_and_give_their_slots_back(driver: Driver) -> None:
    for sequence_id in range(NUM_SLOTS):
        driver.add(request(sequence_id, seed=sequence_id))
    assert driver.llm.num_free_slots == 0
    driver.until_end(*range(NUM_SLOTS))
    assert all(driver.tokens(sequence_id) for sequence_id in range(NUM_SLOTS))
    assert driver.llm.num_free_slots == NUM_SLOTS
    driver.llm.wait()
    assert not driver.llm.is_busy
    assert driver.llm.poll() == []


def test_a_length_limit_truncates(driver: Driver) -> None:
    driver.add(request(0, range(4, 30), max_tokens=3))
    driver.until_end(0)
    assert len(driver.tokens(0)) == 3
    assert driver.outputs[0][-1].is_truncated


def test_no_text_ends_with_nothing_said(driver: Driver) -> None:
    driver.add(request(0, ()))
    driver.until_end(0)
    assert driver.tokens(0) == []
    assert driver.outputs[0][-1].is_final


def test_a_sequence_that_cannot_go_on_fails_alone(driver: Driver) -> None:
    too_long = SequenceRequest(0, PROMPT, tuple([10] * 250), max_tokens=12)
    driver.add(too_long)
    driver.add(request(1))
    driver.until_end(0, 1)
    assert driver.outputs[0][-1].error
    assert driver.outputs[1][-1].error is None
    assert driver.llm.num_free_slots == NUM_SLOTS


def test_refusals_change_nothing(driver: Driver) -> None:
    driver.add(request(0))
    for wrong in (request(0), request(1, (-1,)), request(1, (CONFIG.vocab_size,)), request(1, max_tokens=0)):
        with pytest.raises(InvalidRequest):
            driver.llm.add(wrong)
    for sequence_id in range(1, NUM_SLOTS):
        driver.add(request(sequence_id))
    with pytest.raises(NoFreeSlot):
        driver.llm.add(request(7))
    driver.until_end(*range(NUM_SLOTS))


# --- aborts -----------------------------------------------------------------------------------------------


def test_an_abort_makes_room_at_once_and_touches_nobody(driver: Driver) -> None:
    for sequence_id in range(NUM_SLOTS):
        driver.add(request(sequence_id))
    driver.until(lambda: bool(driver.tokens(0)))
    driver.abort(0)
    driver.abort(0)
    assert driver.llm.num_free_slots >= 1
    driver.add(request(NUM_SLOTS))
    driver.until_end(*range(1, NUM_SLOTS + 1))
    assert all(driver.outputs[sequence_id][-1].error is None for sequence_id in range(1, NUM_SLOTS + 1))
    assert driver.llm.num_free_slots == NUM_SLOTS


def test_an_abort_before_the_first_step_or_after_the_end_is_nothing(driver: Driver) -> None:
    driver.add(request(0))
    driver.abort(0)
    driver.add(request(1))
    driver.until_end(1)
    driver.llm.abort(1)
    driver.llm.abort(99)
    assert driver.llm.num_free_slots == NUM_SLOTS


# --- what not every backend can ---------------------------------------------------------------------------


def test_streamed_text_is_taken_or_refused(driver: Driver) -> None:
    if driver.llm.traits.takes_streamed_text:
        text = [10, 11, 12, 13, 14, 15, 16, 17]
        assert streamed_tokens(driver, 0, [text]) == streamed_tokens(driver, 1, [[each] for each in text])
    else:
        with pytest.raises(InvalidRequest, match="streamed"):
            driver.llm.add(request(0, is_streaming=True))
    assert driver.llm.num_free_slots == NUM_SLOTS


def test_text_where_it_is_not_wanted(driver: Driver) -> None:
    driver.add(request(0))
    with pytest.raises(InvalidRequest):
        driver.llm.push_text(0, [10])
    with pytest.raises(InvalidRequest):
        driver.llm.end_text(0)
    driver.until_end(0)
    driver.llm.push_text(0, [10])
    driver.llm.end_text(0)
    if driver.llm.traits.takes_streamed_text:
        driver.add(request(1, is_streaming=True))
        with pytest.raises(InvalidRequest):
            driver.llm.push_text(1, [CONFIG.vocab_size])
        driver.llm.end_text(1)
        driver.llm.end_text(1)
        with pytest.raises(InvalidRequest):
            driver.llm.push_text(1, [10])
        driver.until_end(1)


def test_a_streaming_sequence_that_waits_for_text_keeps_nobody_busy(driver: Driver) -> None:
    if not driver.llm.traits.takes_streamed_text:
        pytest.skip("this backend takes no streamed text")
    driver.add(request(0, is_streaming=True))
    while driver.llm.is_busy or driver.llm.is_runnable(0):
        if driver.llm.is_runnable(0):
            driver.llm.launch([0])
        driver.llm.wait()
        driver.fetch()
    driver.llm.wait()  # for nothing
    driver.abort(0)
    assert driver.llm.num_free_slots == NUM_SLOTS


def test_equal_seeds_give_equal_tokens_where_that_is_promised(driver: Driver) -> None:
    if not driver.llm.traits.is_reproducible:
        pytest.skip("this backend does not promise it")
    driver.add(request(0, seed=5))
    driver.until_end(0)
    for sequence_id, seed in ((1, 9), (2, 5), (3, 8)):
        driver.add(request(sequence_id, seed=seed))
    driver.until_end(1, 2, 3)
    assert driver.tokens(0) == driver.tokens(2) != driver.tokens(1)


def test_a_growing_sequence_pauses_until_it_is_read_again(driver: Driver) -> None:
    driver.add(request(0, (), is_growing=True))
    with pytest.raises(InvalidRequest):
        driver.llm.read(0, [], until=3)
    driver.llm.read(0, [10, 11], until=3)
    driver.until(lambda: bool(driver.outputs[0]) and driver.outputs[0][-1].is_paused)
    assert len(driver.tokens(0)) == 3
    driver.llm.wait()
    assert not driver.llm.is_busy
    assert driver.llm.num_free_slots == NUM_SLOTS - 1
    with pytest.raises(InvalidRequest):
        driver.llm.read(0, [10, 11, 12], until=3)
    driver.llm.read(0, [10, 11, 12], until=None)
    with pytest.raises(InvalidRequest):
        driver.llm.read(0, [10, 11, 12, 13], until=None)
    driver.until_end(0)
    assert 3 < len(driver.tokens(0)) <= 12
    driver.llm.read(0, [10], until=None)
    driver.add(request(1))
    with pytest.raises(InvalidRequest):
        driver.llm.read(1, [10], until=None)
    driver.abort(1)


# --- who steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tokens", [1, 5, 1000])
def test_tokens_that_are_held_back_are_told_or_can_be_taken(driver: Driver, num_tokens: int) -> None:
    """Both together are what would have come one by one."""
    driver.add(request(0))
    driver.until_end(0)
    driver.add(request(1))
    driver.llm.tell_after(1, num_tokens)
    driver.until(lambda: bool(driver.tokens(1)))
    driver.llm.tell_after(1, num_tokens)
    before, held = driver.tokens(1), driver.llm.take_held(1)
    # A backend that schedules itself may have come to the end meanwhile.
    driver.outputs[1] = [replace(driver.outputs[1][-1], tokens=(*before, *held))]
    driver.until_end(1)
    if driver.llm.traits.is_reproducible:
        assert driver.tokens(1) == driver.tokens(0)
    driver.llm.tell_after(7, 3)
    assert driver.llm.take_held(7) == ()


def test_only_what_is_runnable_is_stepped(driver: Driver) -> None:
    driver.add(request(0))
    if not driver.llm.is_runnable(0):
        assert not driver.llm.takes_step
        return
    assert driver.llm.launch([1, 7]) == [1, 7]
    assert not driver.llm.is_busy
    assert driver.llm.launch([1, 0]) == [1]
    driver.until_end(0)


def test_it_can_be_closed_in_the_middle_and_twice(driver: Driver) -> None:
    driver.add(request(0))
    driver.llm.close()
    driver.llm.abort(0)
    driver.llm.close()
