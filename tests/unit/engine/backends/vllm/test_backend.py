"""The backend over the stand-in for vLLM: what it asks of it. All else: legged/test_backend.py and tests/contract."""

import math
import os
import time

from structlog.testing import capture_logs

from tests.support.vllm.standin import EngineGenerateError
from tests.unit.engine.backends.legged.support import (
    MAX_POSITIONS,
    TEXT,
    VLLM,
    VOCABULARY,
    Endless,
    outputs,
    request,
    tokens,
)

_PATIENCE_S = 60.0


def test_the_engine_is_set_up_so_that_nobody_is_evicted() -> None:
    with VLLM.running(num_slots=5, is_eager=True, has_reuse=False) as made:
        arguments = made.llm.arguments
    assert (arguments["max_num_seqs"], arguments["max_model_len"]) == (5, MAX_POSITIONS)
    assert (arguments["enforce_eager"], arguments["enable_prefix_caching"]) == (True, False)
    assert arguments["gpu_memory_utilization"] == 0.2
    assert made.llm.is_shut_down


def test_its_own_sampling_wants_the_newest_ids_and_nucleus_does_without() -> None:
    with VLLM.running() as made:
        aware = made.llm.arguments
    with VLLM.running(is_repetition_aware=False) as made:
        plain = made.llm.arguments
        made.backend.add(request())
        outputs(made)
        params = made.llm.params[-1]
    assert (aware["async_scheduling"], len(aware["logits_processors"])) == (False, 1)
    assert (plain["async_scheduling"], plain["logits_processors"]) == (True, None)
    assert (params.top_p, params.top_k, params.extra_args) == (0.8, 25, None)


def test_the_log_tells_what_happened_where_the_engine_wraps_it_without_a_message() -> None:
    wrapped = EngineGenerateError()
    wrapped.__cause__ = RuntimeError("CUDA error: misaligned address")
    with capture_logs() as logs, VLLM.running(VLLM.behaviour(Endless(), breaks_with=wrapped)) as made:
        made.backend.add(request())
        (failed,) = outputs(made)
    assert failed.error
    assert "misaligned address" in next(each["error"] for each in logs if each["event"] == "llm_executor_refused")


def test_its_engine_writes_nothing_to_the_servers_own_output() -> None:
    with VLLM.running():
        assert os.environ["VLLM_LOGGING_STREAM"] == "ext://sys.stderr"


def test_a_cancelled_one_is_aborted_in_the_engine_and_the_others_go_on() -> None:
    with VLLM.running(VLLM.behaviour(Endless(), num_steps=5)) as made:
        made.backend.add(request(0, max_tokens=150))
        made.backend.add(request(1, max_tokens=20))
        made.backend.wait()
        made.backend.abort(0)
        due_s = time.monotonic() + _PATIENCE_S
        while made.llm.aborted != ["leg-0"]:
            assert time.monotonic() < due_s
            time.sleep(0.001)
        made.llm.behaviour.num_steps = math.inf
        found = outputs(made)
    assert [each.sequence_id for each in found if each.is_final] == [1]


def test_growing_text_is_submitted_again_with_what_was_spoken() -> None:
    with VLLM.running() as made:
        made.backend.add(request(is_growing=True, max_tokens=60))
        spoken = []
        for text, until in ((TEXT[:2], 5), (TEXT, 10)):
            made.backend.read(0, text, until=until)
            spoken += tokens(outputs(made))
        made.backend.read(0, TEXT, until=None)
        outputs(made)
        prompts, params = made.llm.prompts, made.llm.params
    assert len(prompts) == 3
    assert [id_ - VOCABULARY.first_speech_id for id_ in prompts[2][-len(spoken) :]] == spoken
    assert all(id_ < VOCABULARY.num_ids for ids in prompts for id_ in ids)
    args = [each.extra_args["voicegate"] for each in params]
    assert [each["num_spoken"] for each in args] == [0, 5, 10]
