"""The backend where its executor falls silent, is sick, or does not come back from a call."""

import threading
import time
from dataclasses import replace
from itertools import count

import pytest

from tests.support.tensorrt_llm.standin import Behaviour
from tests.unit.engine.backends.legged.support import TENSORRT_LLM, Running, SmallModel, outputs, request
from tests.unit.engine.backends.legged.test_backend import SOON_S, Bell
from voicegate.engine.backends.legged import executor
from voicegate.engine.llm.backend import LlmDied, SequenceOutput


def until_end(made: Running, sequence_id: int) -> list[SequenceOutput]:
    found: list[SequenceOutput] = []
    while not any(each.is_final and each.sequence_id == sequence_id for each in found):
        made.backend.wait()
        found += made.backend.poll()
    return found


def test_a_sequence_that_is_lost_fails_alone() -> None:
    with TENSORRT_LLM.running(first_token_timeout_s=60.0, token_timeout_s=1.0, stream_interval=1) as made:
        made.backend.add(request(max_tokens=150))
        made.backend.wait()
        made.llm.behaviour.lost.add(0)
        lost: list[SequenceOutput] = []
        for other in count(1):  # they are heard meanwhile
            made.backend.add(request(other, max_tokens=1))
            lost += [each for each in until_end(made, other) if each.sequence_id == 0 and each.error]
            if lost:
                break
    assert lost == [SequenceOutput(0, error="the LLM made no token for 1 s")]


def test_a_time_in_which_nobody_could_listen_is_no_silence() -> None:
    """As of a machine that stood still: what came meanwhile is heard first."""
    with TENSORRT_LLM.running(first_token_timeout_s=60.0, token_timeout_s=SOON_S, stream_interval=1) as made:
        made.backend.add(request(max_tokens=80))
        made.backend.wait()
        made.backend._executor._loop.call_soon_threadsafe(time.sleep, 3 * SOON_S)
        found = outputs(made)
    assert found[-1].is_final
    assert found[-1].error is None


# --- a sick executor --------------------------------------------------------------------------------------

CUDA_ERROR = "CUDA error: an illegal memory access was encountered"


def fail_on(made: Running, failed: list[SequenceOutput]) -> None:
    for number in range(1, 20):
        made.backend.add(request(number))
        failed += outputs(made)


def test_an_executor_that_fails_whatever_it_is_given_is_found_out() -> None:
    """It answers each request with an error of its own, and goes on: nothing else tells of it."""
    with TENSORRT_LLM.running() as made:
        bell = Bell()
        made.backend.set_waker(bell)
        made.backend.add(request(0))
        assert outputs(made)[-1].is_final
        made.llm.behaviour.breaks_step_with = CUDA_ERROR
        failed: list[SequenceOutput] = []
        with pytest.raises(LlmDied, match=f"TensorRT-LLM: .*one after the other.*{CUDA_ERROR}"):
            fail_on(made, failed)
        assert [each.error for each in failed] == ["the LLM's executor refused this sequence; see the log"] * 4
        assert bell.rung.is_set()


def test_one_bad_step_is_the_end_of_those_in_it_alone() -> None:
    with TENSORRT_LLM.running(num_slots=20) as made:
        for _ in range(3):
            with made.llm.held():
                for number in range(20):
                    made.backend.add(request(number))
                made.llm.behaviour.breaks_step_with = "out of memory"
            failed = outputs(made)
            assert len(failed) == 20
            assert all(each.error for each in failed)
            made.llm.behaviour.breaks_step_with = None
            made.backend.add(request(20))
            assert outputs(made)[-1].is_final


def test_bad_requests_beside_good_ones_are_no_sickness() -> None:
    behaviour = Behaviour(SmallModel(), refuses=lambda prompt: "no such prompt" if 31 in prompt else None)
    with TENSORRT_LLM.running(behaviour) as made:
        for number in range(10):
            made.backend.add(replace(request(number), text_ids=(31,)))
            made.backend.add(request(100 + number, max_tokens=2))
            ended = {each.sequence_id: each.error is None for each in outputs(made) if each.error or each.is_final}
            assert ended == {number: False, 100 + number: True}


def test_it_can_be_closed_while_a_call_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_LOOP_PATIENCE_S", 0.2)
    called, back = threading.Event(), threading.Event()

    def wait() -> None:
        called.set()
        back.wait(60)

    with TENSORRT_LLM.running(Behaviour(SmallModel(), submits_behind=wait)) as made:
        made.backend.add(request())
        assert called.wait(60)
        closing = threading.Thread(target=made.backend.close, daemon=True)
        closing.start()
        closing.join(10)
        is_closed = not closing.is_alive()
        back.set()
    assert is_closed


def test_an_abort_that_is_never_answered_is_forgotten() -> None:
    """The executor says nothing more of a request that waited for room."""
    with TENSORRT_LLM.running(num_slots=1, first_token_timeout_s=SOON_S, token_timeout_s=60.0) as made:
        with made.llm.held():
            for number in range(3):
                made.backend.add(request(number))
                made.backend.abort(number)
            made.backend.add(request(3))
        assert {each.sequence_id for each in outputs(made)} == {3}
        made.backend.add(request(4))
        assert outputs(made)[-1].is_final
