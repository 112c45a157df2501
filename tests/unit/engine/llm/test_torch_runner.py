"""The runner's promises on a small random model: batched = alone, slots, failures, text that streams in."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.golden import TINY_MODEL_DIR
from tests.unit.engine.llm.support import drain, small_llm_config, small_state_dict, tokens
from voicegate.engine.llm.backend import (
    InvalidRequest,
    LlmPrompt,
    NoFreeSlot,
    SequenceOutput,
    SequenceRequest,
)
from voicegate.engine.llm.slots import seed_key, uniforms
from voicegate.engine.llm.torch import runner as torch_runner
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel, num_products
from voicegate.engine.llm.torch.penalty_sampler import RepetitionPenaltySampler
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import PenaltySamplingConfig, SamplingConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict

CONFIG = small_llm_config()
STATE = small_state_dict()
PROMPT = LlmPrompt((1, 2, 3, 9, 8), (5, 6, 7))


def make_runner(*, num_slots: int = 4, max_positions: int = 256) -> TorchLlmRunner:
    return TorchLlmRunner(CONFIG, SamplingConfig(), STATE, num_slots=num_slots, max_positions=max_positions)


def request(
    sequence_id: int, *, seed: int = 0, num_text: int = 4, is_streaming: bool = False, max_tokens: int | None = 20
) -> SequenceRequest:
    text = tuple(range(10, 10 + num_text))
    return SequenceRequest(sequence_id, PROMPT, text, is_streaming=is_streaming, seed=seed, max_tokens=max_tokens)


@cache
def alone(wanted: SequenceRequest) -> list[int]:
    """The tokens of a sequence that was always alone, its text complete from the start."""
    runner = make_runner()
    runner.add(wanted)
    if wanted.is_streaming:
        runner.end_text(wanted.sequence_id)
    return tokens(drain(runner)[wanted.sequence_id])


def expected(seed: int) -> list[int]:
    return alone(request(0, seed=seed))


def test_a_batch_gives_what_each_gives_alone() -> None:
    runner = make_runner()
    wanted = [
        request(0, seed=5),
        request(1, seed=5),
        request(2, seed=6, num_text=9),
        request(3, seed=7, num_text=12, is_streaming=True),
    ]
    for each in wanted:
        runner.add(each)
    runner.end_text(3)
    outputs = drain(runner)
    for each in wanted:
        assert tokens(outputs[each.sequence_id]) == alone(each)
        last = outputs[each.sequence_id][-1]
        assert last.is_final
        assert last.error is None
    assert tokens(outputs[0]) == tokens(outputs[1])
    assert tokens(outputs[0]) != tokens(outputs[2])
    assert runner.num_free_slots == 4


@pytest.mark.parametrize("is_streaming", [False, True])
def test_a_penalty_is_on_what_was_fed_of_speech(monkeypatch: pytest.MonkeyPatch, is_streaming: bool) -> None:
    """The prompt's and its own; nothing of the sequence that had the slot before, and not fill, which is never fed."""
    seen: list[set[int]] = []
    sample = RepetitionPenaltySampler.sample

    def spy(sampler: RepetitionPenaltySampler, scores: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        seen.append(set(given["seen"][0].nonzero()[:, 0].tolist()))
        return sample(sampler, scores, **given)

    monkeypatch.setattr(RepetitionPenaltySampler, "sample", spy)
    runner = TorchLlmRunner(CONFIG, PenaltySamplingConfig(), STATE, num_slots=1, max_positions=256)
    for sequence_id in range(2):
        runner.add(request(sequence_id, num_text=12, seed=sequence_id, is_streaming=is_streaming, max_tokens=30))
        if is_streaming:
            runner.end_text(sequence_id)
        seen.clear()
        spoken = tokens(drain(runner)[sequence_id])
        fed = {*PROMPT.speech_ids, CONFIG.sos_id}
        fed_with_task = fed | {CONFIG.task_id}
        assert len(spoken) == 30
        assert seen[0] == (fed if is_streaming else fed_with_task)
        assert seen[-1] - fed_with_task == set(spoken[:-1]) - fed_with_task
        assert CONFIG.fill_id not in seen[-1]


def test_ids_that_are_fed_and_never_drawn_are_rows_of_the_table_alone() -> None:
    """sos and task behind the head's rows: the same weights, moved, say the same."""
    moved = replace(CONFIG, num_special_rows=198, num_unspoken_rows=2, sos_id=498, task_id=499)
    state = dict(STATE)
    table = STATE["speech_embedding.weight"].clone()
    table[[498, 499]] = table[[CONFIG.sos_id, CONFIG.task_id]]
    state["speech_embedding.weight"] = table
    state["llm_decoder.weight"] = STATE["llm_decoder.weight"][:498]
    logits = [
        LlmModel(config, weights).logits(torch.ones(1, config.hidden_size))
        for config, weights in ((CONFIG, STATE), (moved, state))
    ]
    torch.testing.assert_close(logits[0][:, :498], logits[1])
    runner = TorchLlmRunner(moved, PenaltySamplingConfig(), state, num_slots=1, max_positions=256)
    runner.add(request(0, seed=4))
    spoken = tokens(drain(runner)[0])
    reference = TorchLlmRunner(CONFIG, PenaltySamplingConfig(), STATE, num_slots=1, max_positions=256)
    reference.add(request(0, seed=4))
    assert spoken == tokens(drain(reference)[0])


def test_the_sampler_sees_the_last_ten_ids_and_fresh_uniforms(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[int], list[float]]] = []
    sample = RepetitionAwareSampler.sample

    def spy(sampler: RepetitionAwareSampler, scores: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        seen.append((given["history"][0].tolist(), given["uniforms"][0].tolist()))
        return sample(sampler, scores, **given)

    monkeypatch.setattr(RepetitionAwareSampler, "sample", spy)
    runner = make_runner()
    runner.add(request(0, seed=8, num_text=12, is_streaming=True, max_tokens=40))
    runner.end_text(0)
    decoded: list[int] = []
    while runner.is_runnable(0):
        num_seen = len(seen)
        (output,) = runner.step([0])
        if len(seen) > num_seen:
            history, drawn = seen[-1]
            assert sorted(history) == sorted(([-1] * 10 + decoded)[-10:])
            assert drawn == uniforms(np.array([seed_key(8)]), np.array([num_seen], dtype=np.uint64))[0].tolist()
        decoded += output.tokens or (CONFIG.fill_id,)
    assert CONFIG.fill_id in decoded
    assert len(decoded) > 40


@settings(max_examples=15)
@given(st.permutations(range(4)), st.lists(st.integers(0, 6), min_size=4, max_size=4))
def test_neither_order_nor_time_of_joining_matters(order: list[int], joins: list[int]) -> None:
    runner = make_runner()
    outputs: dict[int, list[SequenceOutput]] = {}

    def join(step: int) -> None:
        for index in order:
            if joins[index] == step:
                runner.add(request(index, seed=index))

    join(0)
    for step in range(1, 100):
        runnable = [index for index in order if runner.is_runnable(index)]
        for output in runner.step(runnable):
            outputs.setdefault(output.sequence_id, []).append(output)
        join(step)
    assert {index: tokens(outputs[index]) for index in range(4)} == {index: expected(index) for index in range(4)}


def test_a_reused_slot_equals_a_fresh_one() -> None:
    runner = make_runner(num_slots=1)
    runner.add(request(0, seed=1, num_text=15))
    drain(runner)
    runner.add(request(0, seed=2))
    assert tokens(drain(runner)[0]) == expected(2)


def test_abort_changes_nothing_for_the_others() -> None:
    runner = make_runner(num_slots=3)
    for index in range(3):
        runner.add(request(index, seed=index))

    def abort(step: int) -> None:
        if step == 4:
            runner.abort(1)
            runner.abort(1)
            assert runner.num_free_slots == 1
            runner.add(request(5, seed=3))

    outputs = drain(runner, abort)
    assert tokens(outputs[0]) == expected(0)
    assert tokens(outputs[2]) == expected(2)
    assert tokens(outputs[5]) == expected(3)
    assert len(outputs[1]) == 5


def test_a_sequence_too_long_for_its_slot_fails_alone() -> None:
    runner = make_runner(max_positions=24)
    runner.add(request(0, seed=0, max_tokens=6))  # 14 positions and 5 tokens that are fed again
    runner.add(request(1, seed=1, max_tokens=None))  # runs into the end of its slot
    runner.add(request(2, num_text=20))  # does not even begin
    outputs = drain(runner)
    assert tokens(outputs[0]) == expected(0)[:6]
    assert outputs[0][-1].is_truncated
    assert outputs[1][-1].error is not None
    assert "24 positions" in outputs[1][-1].error
    assert not outputs[1][-1].is_final
    assert [output.error is None for output in outputs[2]] == [False]
    assert runner.num_free_slots == 4


@pytest.mark.parametrize(("max_positions", "fits"), [(19, True), (18, False)])
def test_a_slot_can_be_used_to_its_last_position(max_positions: int, fits: bool) -> None:
    runner = make_runner(max_positions=max_positions)
    runner.add(request(0, max_tokens=6))  # 14 positions, and all tokens but the last are fed again
    assert (drain(runner)[0][-1].error is None) == fits


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), max_size=6), st.integers(0, 3))
def test_streamed_text_gives_the_same_tokens_however_it_arrives(cuts: list[tuple[int, int]], seed: int) -> None:
    text = tuple(range(4, 26))
    runner = make_runner()
    everything = SequenceRequest(0, PROMPT, text, is_streaming=True, seed=seed, max_tokens=60)
    runner.add(SequenceRequest(0, PROMPT, text[:1], is_streaming=True, seed=seed, max_tokens=60))
    outputs: list[SequenceOutput] = []
    rest = text[1:]
    for num_pushed, num_steps in cuts:
        runner.push_text(0, rest[:num_pushed])
        rest = rest[num_pushed:]
        for _ in range(num_steps):
            if runner.is_runnable(0):
                outputs += runner.step([0])
    runner.push_text(0, rest)
    runner.end_text(0)
    outputs += drain(runner).get(0, [])
    assert tokens(outputs) == alone(everything)


@pytest.mark.parametrize("is_streaming", [False, True])
def test_no_text_ends_with_nothing_said(is_streaming: bool) -> None:
    runner = make_runner()
    runner.add(request(0, num_text=0, is_streaming=is_streaming))
    if is_streaming:
        runner.end_text(0)
    assert runner.step([0]) == [SequenceOutput(0, is_final=True)]
    assert runner.num_free_slots == 4


def test_refusals_change_nothing() -> None:
    runner = make_runner(num_slots=1)
    for wrong, message in [
        (SequenceRequest(0, LlmPrompt(), (1, 2)), "endofprompt"),
        (SequenceRequest(0, PROMPT, (32,)), "text ids"),
        (SequenceRequest(0, LlmPrompt((3,), (500,)), (1,)), "speech ids"),
        (request(0, max_tokens=0), "max_tokens"),
    ]:
        with pytest.raises(InvalidRequest, match=message):
            runner.add(wrong)
    assert runner.num_free_slots == 1
    runner.add(request(0))
    with pytest.raises(InvalidRequest, match="alive"):
        runner.add(request(0))
    with pytest.raises(NoFreeSlot):
        runner.add(request(1))
    with pytest.raises(InvalidRequest, match="not streaming"):
        runner.push_text(0, [1])
    assert runner.launch([7, 1]) == [7, 1]
    assert not runner.is_busy
    assert tokens(drain(runner)[0]) == expected(0)


# --- text that grows ------------------------------------------------------------------------------------------

READINGS = (((10, 11), 3), ((10, 11, 12), 6), ((10, 11, 12, 13), None))


def grown(sequence_id: int, *, seed: int) -> SequenceRequest:
    return SequenceRequest(sequence_id, PROMPT, (), is_growing=True, seed=seed, max_tokens=20)


def read_on(runner: TorchLlmRunner, sequence_id: int) -> list[SequenceOutput]:
    """Every reading of READINGS to its pause or end, alone or with whatever else is runnable."""
    outputs: list[SequenceOutput] = []
    for text_ids, until in READINGS:
        runner.read(sequence_id, text_ids, until=until)
        outputs += drain(runner)[sequence_id]
    return outputs


def test_a_reading_goes_on_as_if_all_its_text_and_speech_were_fed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner()
    runner.add(grown(0, seed=5))
    outputs = read_on(runner, 0)
    assert [index for index, output in enumerate(outputs) if output.is_paused] == [2, 5]
    monkeypatch.setattr("voicegate.engine.llm.sequence.Growing._num_common", lambda *_: 0)
    anew = make_runner()
    anew.add(grown(0, seed=5))
    assert read_on(anew, 0) == outputs


def test_readings_in_a_batch_are_what_they_are_alone() -> None:
    runner = make_runner()
    for sequence_id, seed in ((0, 5), (1, 6)):
        runner.add(grown(sequence_id, seed=seed))
    runner.add(request(2, seed=7))
    together: dict[int, list[int]] = {0: [], 1: []}
    for text_ids, until in READINGS:
        for sequence_id in together:
            runner.read(sequence_id, text_ids, until=until)
        outputs = drain(runner)
        for sequence_id, spoken in together.items():
            spoken += tokens(outputs[sequence_id])
    for sequence_id, seed in ((0, 5), (1, 6)):
        single = make_runner()
        single.add(grown(0, seed=seed))
        assert tokens(read_on(single, 0)) == together[sequence_id]
    assert runner.num_free_slots == 4


@pytest.mark.usefixtures("two_threads")
def test_a_step_of_few_lines_has_one_thread_and_larger_ones_have_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    forward = LlmModel.forward

    def spy(model: LlmModel, embeddings: torch.Tensor, attention: RaggedAttention) -> torch.Tensor:
        seen.append((len(embeddings), torch.get_num_threads()))
        return forward(model, embeddings, attention)

    monkeypatch.setattr(LlmModel, "forward", spy)
    monkeypatch.setattr(torch_runner, "ONE_THREADS_PRODUCTS", 2 * num_products(CONFIG))
    runner = make_runner()
    for index in range(3):
        runner.add(request(index))
    runner.step([0])
    runner.step([0])
    runner.step([1, 2])
    runner.step([0, 1])
    runner.step([0, 1, 2])
    assert seen[0][0] > 2
    assert seen[1:] == [(1, 1), (seen[2][0], 2), (2, 1), (3, 2)]
    assert seen[0][1] == 2
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(LlmModel, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runner.step([0])
    assert torch.get_num_threads() == 2


def test_tokens_do_not_depend_on_the_number_of_threads() -> None:
    """The embedded model: many keys, which attention would part among threads."""
    config = load_model_config(TINY_MODEL_DIR)
    state = load_state_dict(TINY_MODEL_DIR / "llm.safetensors")
    model = LlmModel(config.llm, state)
    hidden = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        cache = KvCache(config.llm, num_slots=1, max_positions=600, device="cpu", dtype=torch.float32)
        generator = torch.Generator().manual_seed(0)
        lines = torch.randn(300, config.llm.hidden_size, generator=generator)
        model.forward(lines, RaggedAttention(cache, [Span(0, 0, 300)]))
        hidden.append(model.forward(lines[:1], RaggedAttention(cache, [Span(0, 300, 1)])))
    torch.set_num_threads(1)
    assert torch.equal(hidden[0], hidden[1])
