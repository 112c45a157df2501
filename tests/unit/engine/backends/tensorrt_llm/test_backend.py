"""The backend over the stand-in: what it asks for, what it makes of what comes, and what it does when nothing comes."""

import random
from collections.abc import Sequence

import pytest
import torch

from tests.support.tensorrt_llm.standin import Behaviour
from tests.unit.engine.backends.legged.support import (
    CONFIG,
    MAX_POSITIONS,
    TENSORRT_LLM,
    TEXT,
    VOCABULARY,
    Running,
    SmallModel,
    outputs,
    request,
    tokens,
)
from tests.unit.engine.llm.support import small_state_dict
from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.model.config import SamplingConfig

# --- what it asks for -------------------------------------------------------------------------------------


def test_the_executor_is_set_up_as_documented() -> None:
    with TENSORRT_LLM.running(num_slots=5, stream_interval=4) as made:
        settings = made.llm.settings
        assert made.llm.is_single_process
        assert settings["skip_tokenizer_init"]
        assert settings["max_batch_size"] == settings["cuda_graph_config"].max_batch_size == 5
        assert settings["cuda_graph_config"].enable_padding
        assert settings["max_seq_len"] == MAX_POSITIONS
        assert settings["max_num_tokens"] >= MAX_POSITIONS, "a prompt is computed in one step"
        assert 5 * MAX_POSITIONS <= settings["kv_cache_config"].max_tokens <= 15 * (MAX_POSITIONS + 32)
        assert settings["kv_cache_config"].max_tokens % settings["kv_cache_config"].tokens_per_block == 0
        assert settings["kv_cache_config"].enable_block_reuse
        assert (settings["stream_interval"], settings["disable_overlap_scheduler"]) == (4, False)
    assert made.llm.is_shut_down


def test_switches() -> None:
    with TENSORRT_LLM.running(has_worker_process=True, is_eager=True, has_overlap=False, has_reuse=False) as made:
        assert not made.llm.is_single_process
        assert made.llm.settings["cuda_graph_config"] is None
        assert made.llm.settings["disable_overlap_scheduler"]
        assert not made.llm.settings["kv_cache_config"].enable_block_reuse


def test_sampling_as_nvidias_runtime_has_it() -> None:
    with TENSORRT_LLM.running() as made:
        made.backend.add(request(seed=3))
        outputs(made)
        params = made.llm.requests[0].params
        assert made.llm.settings["sampler_type"] == "TRTLLMSampler"
        assert (params.temperature, params.top_p, params.top_k, params.repetition_penalty) == (0.8, 0.95, 50, 1.1)
        assert (params.max_tokens, params.end_id, params.stop_token_ids) == (12, VOCABULARY.eos_id, None)
        assert (params.seed, params.min_tokens, params.detokenize) == (3, None, False)


@pytest.mark.parametrize(("has_overlap", "stream_interval"), [(True, 1), (False, 3)])
def test_repetition_aware_sampling_draws_what_our_own_runner_draws(has_overlap: bool, stream_interval: int) -> None:
    """Also across readings: window and random stream go on."""
    runner = TorchLlmRunner(CONFIG, SamplingConfig(), small_state_dict(), num_slots=2, max_positions=MAX_POSITIONS)
    expected: dict[int, list[int]] = {0: [], 1: []}
    runner.add(request(0, seed=11, max_tokens=30))
    runner.add(request(1, seed=12, max_tokens=30, is_growing=True))
    for text, until in ((TEXT[:2], 5), (TEXT[:3], 11), (TEXT, None)):
        runner.read(1, text, until=until)
        while ready := [each for each in (0, 1) if runner.is_runnable(each)]:
            for output in runner.step(ready):
                expected[output.sequence_id] += output.tokens
    with TENSORRT_LLM.running(
        is_repetition_aware=True, has_overlap=has_overlap, stream_interval=stream_interval
    ) as made:
        made.backend.add(request(0, seed=11, max_tokens=30))
        found = outputs(made)
        made.backend.add(request(1, seed=12, max_tokens=30, is_growing=True))
        for text, until in ((TEXT[:2], 5), (TEXT[:3], 11), (TEXT, None)):
            made.backend.read(1, text, until=until)
            found += outputs(made)
        assert made.llm.settings["sampler_type"] == "TorchSampler"
    assert expected[0]
    assert len(expected[1]) > 11
    assert {each: tokens(found, each) for each in expected} == expected


def test_strays_are_counted() -> None:
    model = SmallModel()

    def straying(ids: Sequence[int]) -> torch.Tensor:
        logits = model(ids).clone()
        logits[4] = 100.0 if len(ids) == 20 else logits[4]  # a text id
        return logits

    with TENSORRT_LLM.running(Behaviour(straying)) as made:
        made.backend.add(request(max_tokens=12))
        found = outputs(made)
        assert found[-1].is_final
        assert made.backend.counters["llm_strays"] == 1
        assert made.backend.counters["llm_prompt_tokens"] >= 14


def test_a_readings_parameters() -> None:
    with TENSORRT_LLM.running() as made:
        made.backend.add(request(is_growing=True))
        made.backend.read(0, TEXT[:2], until=5)
        outputs(made)
        made.backend.read(0, TEXT, until=None)
        outputs(made)
        assert made.llm.requests[0].params.max_tokens == 5
        assert made.llm.requests[0].params.seed != made.llm.requests[1].params.seed


# --- what comes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shows_end", [True, False])
@pytest.mark.parametrize("num_late", [0, 5])
def test_the_same_is_heard_however_the_responses_come(shows_end: bool, num_late: int) -> None:
    heard = []
    for interval in (1, 4):
        behaviour = Behaviour(SmallModel(), shows_end=shows_end, num_responses_late=num_late)
        with TENSORRT_LLM.running(behaviour, stream_interval=interval) as made:
            made.backend.add(request(seed=2, max_tokens=60))
            found = outputs(made)
            assert found[-1].is_final
            assert all(0 <= token < CONFIG.speech_token_size for token in tokens(found))
            heard.append(tokens(found))
    assert heard[0] == heard[1]


def test_an_aborted_sequence_is_taken_from_the_executor_and_heard_no_more() -> None:
    with TENSORRT_LLM.running() as made:
        with made.llm.held():
            made.backend.add(request(0))
            made.backend.add(request(1))
            made.backend.abort(0)
            assert made.backend.num_free_slots == 2
            made.llm.wait_for_cancel()
        found = outputs(made)
        assert {output.sequence_id for output in found} == {1}
        made.backend.add(request(2))
        outputs(made)
        assert made.llm.requests[0].output.outputs[0].finish_reason == "cancelled"


def test_an_end_that_only_we_know_is_told_to_the_executor() -> None:
    """Another special id than eos: it would babble on to max_tokens."""
    model = SmallModel()
    fill = VOCABULARY.first_speech_id + CONFIG.fill_id

    def filling(ids: Sequence[int]) -> torch.Tensor:
        logits = model(ids).clone()
        if len(ids) > 20:
            logits[fill] = 100.0
        return logits

    with TENSORRT_LLM.running(Behaviour(filling), is_repetition_aware=True) as made:
        made.backend.add(request(max_tokens=80))
        found = outputs(made)
        assert found[-1].is_final
        assert not found[-1].is_truncated
        made.backend.add(request(1, max_tokens=3))
        outputs(made)
        assert made.llm.requests[0].output.finished
        assert len(made.llm.requests[0].generated) < 80


def babble(ids: Sequence[int]) -> torch.Tensor:
    """No model: some speech id, sometimes a stray, a fill or the end."""
    logits = torch.full((VOCABULARY.num_rows,), -30.0)
    number = len(ids) * 7919 + ids[-1] * 104_729
    kinds = {0: VOCABULARY.eos_id, 1: 4, 2: VOCABULARY.num_ids, 3: VOCABULARY.first_speech_id + CONFIG.fill_id}
    speech = VOCABULARY.first_speech_id + number % CONFIG.speech_token_size
    logits[kinds.get(number % 23, speech)] = 0.0
    logits[speech] = max(float(logits[speech]), -5.0)
    return logits


class Caller:
    """Stands for the engine, in any order; holds every output against the seam's promises."""

    def __init__(self, made: Running, rng: random.Random) -> None:
        self._made = made
        self._rng = rng
        self._alive: dict[int, bool] = {}  # whether it can be read
        self._spoken: dict[int, int] = {}
        self._next_id = 0
        self.num_ended = 0

    def act(self) -> None:
        match self._rng.randrange(8):
            case 0 | 1 if self._made.backend.num_free_slots:
                self._add(is_growing=self._rng.random() < 0.5)
            case 2 if self._alive:
                sequence_id = self._rng.choice(list(self._alive))
                self._made.backend.abort(sequence_id)
                del self._alive[sequence_id]
            case 3 | 4:
                self._read()
            case _:
                if self._rng.random() < 0.7:
                    self._made.backend.wait()
                self.take(self._made.backend.poll())

    def finish(self) -> None:
        while self._alive:
            self._read(is_complete=True)
            self.take(outputs(self._made))

    def _add(self, *, is_growing: bool) -> None:
        self._made.backend.add(request(self._next_id, seed=self._next_id, max_tokens=30, is_growing=is_growing))
        self._alive[self._next_id], self._spoken[self._next_id] = is_growing, 0
        self._next_id += 1

    def _read(self, *, is_complete: bool = False) -> None:
        for sequence_id, can_be_read in list(self._alive.items()):
            if can_be_read:
                until = None if is_complete or self._rng.random() < 0.3 else self._spoken[sequence_id] + 4
                self._made.backend.read(sequence_id, TEXT, until=until)
                self._alive[sequence_id] = False

    def take(self, found: list[SequenceOutput]) -> None:
        for output in found:
            if output.sequence_id not in self._spoken or output.sequence_id not in self._alive:
                continue  # aborted
            assert all(0 <= token < CONFIG.speech_token_size for token in output.tokens)
            self._spoken[output.sequence_id] += len(output.tokens)
            assert self._spoken[output.sequence_id] <= 30
            if output.is_final or output.error:
                del self._alive[output.sequence_id]
                self.num_ended += 1
            elif output.is_paused:
                self._alive[output.sequence_id] = True


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_everything_ends_once_and_all_slots_come_back(seed: int) -> None:
    rng = random.Random(seed)
    behaviour = Behaviour(babble, shows_end=bool(seed % 2), num_responses_late=seed)
    with TENSORRT_LLM.running(behaviour, stream_interval=1 + seed, is_repetition_aware=seed == 3) as made:
        caller = Caller(made, rng)
        for _ in range(400):
            caller.act()
        caller.finish()
        assert caller.num_ended
        assert made.backend.num_free_slots == 3
        assert made.backend.poll() == []
