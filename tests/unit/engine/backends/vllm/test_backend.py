"""The backend over the stand-in: what it asks for, cancelling, refusals, silence, a dead engine, growing text."""

import math
import time
from collections.abc import Callable, Sequence

import pytest
import torch

from tests.support.vllm.standin import Behaviour, EngineDeadError
from tests.unit.engine.backends.tensorrt_llm.support import CONFIG, MAX_POSITIONS, VOCABULARY, SmallModel
from tests.unit.engine.backends.vllm.support import Running, running
from voicegate.engine.llm.backend import InvalidRequest, LlmDied, LlmPrompt, SequenceOutput, SequenceRequest

PROMPT = LlmPrompt((1, 2, CONFIG.end_of_prompt_id or 0, 9, 8), (5, 6, 7))
TEXT = (10, 11, 12, 13)
_PATIENCE_S = 60.0


def request(sequence_id: int = 0, *, max_tokens: int = 12, is_growing: bool = False) -> SequenceRequest:
    text_ids = () if is_growing else TEXT
    return SequenceRequest(sequence_id, PROMPT, text_ids, max_tokens=max_tokens, is_growing=is_growing)


def outputs(made: Running) -> list[SequenceOutput]:
    """Until it has nothing under way."""
    found = []
    while made.backend.is_busy:
        made.backend.wait()
        found += made.backend.poll()
    return found


def until(is_so: Callable[[], bool]) -> None:
    due_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < due_s
        time.sleep(0.001)


def test_the_engine_is_set_up_so_that_nobody_is_evicted() -> None:
    with running(num_slots=5, is_eager=True, has_reuse=False) as made:
        arguments = made.llm.arguments
    assert (arguments["max_num_seqs"], arguments["max_model_len"]) == (5, MAX_POSITIONS)
    assert (arguments["enforce_eager"], arguments["enable_prefix_caching"]) == (True, False)
    assert arguments["gpu_memory_utilization"] == 0.2
    assert made.llm.is_shut_down


def test_its_own_sampling_wants_the_newest_ids_and_nucleus_does_without() -> None:
    with running() as made:
        aware = made.llm.arguments
    with running(is_repetition_aware=False) as made:
        plain = made.llm.arguments
        made.backend.add(request())
        outputs(made)
        params = made.llm.params[-1]
    assert (aware["async_scheduling"], len(aware["logits_processors"])) == (False, 1)
    assert (plain["async_scheduling"], plain["logits_processors"]) == (True, None)
    assert (params.top_p, params.top_k, params.extra_args) == (0.8, 25, None)


def test_several_speak_at_once_and_each_has_its_own_tokens() -> None:
    with running() as made:
        for number in range(3):
            made.backend.add(request(number, max_tokens=20 + number))
        found = outputs(made)
        assert made.backend.num_free_slots == 3
    ends = {each.sequence_id: each for each in found if each.is_final}
    assert ends.keys() == {0, 1, 2}
    for number in range(3):
        spoken = [token for each in found if each.sequence_id == number for token in each.tokens]
        assert all(0 <= token < CONFIG.speech_token_size for token in spoken)
        assert len(spoken) <= 20 + number
    assert all(id_ < VOCABULARY.num_ids for ids in made.llm.prompts for id_ in ids)


class Endless(SmallModel):
    """It draws no end."""

    def __call__(self, ids: Sequence[int]) -> torch.Tensor:
        logits = super().__call__(ids).clone()
        logits[VOCABULARY.first_speech_id + CONFIG.speech_token_size :] = -100.0
        return logits


def test_a_cancelled_one_is_aborted_in_the_engine_and_the_others_go_on() -> None:
    with running(Behaviour(Endless(), num_steps=5)) as made:
        made.backend.add(request(0, max_tokens=150))
        made.backend.add(request(1, max_tokens=20))
        made.backend.wait()
        made.backend.abort(0)
        assert made.backend.num_free_slots == 2
        until(lambda: made.llm.aborted == ["leg-0"])
        made.llm.behaviour.num_steps = math.inf
        found = outputs(made)
    assert [each.sequence_id for each in found if each.is_final] == [1]


def test_growing_text_is_submitted_again_over_the_prefix_cache() -> None:
    with running() as made:
        made.backend.add(request(is_growing=True, max_tokens=60))
        made.backend.read(0, TEXT[:2], until=5)
        first = outputs(made)
        made.backend.read(0, TEXT, until=10)
        second = outputs(made)
        made.backend.read(0, TEXT, until=None)
        third = outputs(made)
    assert [first[-1].is_paused, second[-1].is_paused, third[-1].is_final] == [True, True, True]
    assert [sum(len(each.tokens) for each in part) for part in (first, second)] == [5, 5]
    assert len(made.llm.prompts) == 3
    spoken = [token for each in (*first, *second) for token in each.tokens]
    assert [id_ - VOCABULARY.first_speech_id for id_ in made.llm.prompts[2][-len(spoken) :]] == spoken
    assert made.backend.counters["llm_cached_tokens"] > 0
    args = [params.extra_args["voicegate"] for params in made.llm.params if params.extra_args]
    assert [(each["forbids_end"], each["num_spoken"]) for each in args] == [(True, 0), (True, 5), (False, 10)]


def test_a_refused_one_fails_alone() -> None:
    behaviour = Behaviour(SmallModel(), refuses=lambda ids: "no such prompt" if 31 in ids else None)
    with running(behaviour) as made:
        made.backend.add(SequenceRequest(0, PROMPT, (31,), max_tokens=5))
        made.backend.add(request(1))
        ended = {each.sequence_id: each.error for each in outputs(made) if each.error or each.is_final}
    assert ended == {0: "the LLM's executor refused this sequence; see the log", 1: None}


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_dead_engine_is_told(is_begun: bool) -> None:
    with running(Behaviour(Endless())) as made:
        if is_begun:
            made.backend.add(request(max_tokens=150))
            made.backend.wait()
        made.llm.behaviour.breaks_with = EngineDeadError("EngineCore encountered an issue")
        made.backend.add(request(1))
        with pytest.raises(LlmDied, match="vLLM: EngineCore encountered an issue"):
            outputs(made)


def test_an_engine_that_falls_silent_is_told() -> None:
    with running(first_token_timeout_s=0.5, token_timeout_s=0.5) as made:
        made.llm.behaviour.num_steps = 0
        made.backend.add(request())
        with pytest.raises(LlmDied, match=r"vLLM: nothing has come of it for 0\.5 s"):
            outputs(made)


def test_its_text_is_taken_whole() -> None:
    with running() as made:
        assert not made.backend.traits.takes_streamed_text
        assert not made.backend.traits.is_reproducible
        with pytest.raises(InvalidRequest, match="vLLM takes no streamed text"):
            made.backend.add(SequenceRequest(0, PROMPT, TEXT, is_streaming=True))
