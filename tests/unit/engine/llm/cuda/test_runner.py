"""The CUDA runner, kernels and all, against the CPU runner: the same tokens, however steps are batched and launched."""

from dataclasses import replace

import pytest
import torch

from tests.unit.engine.llm.cuda.support import CONFIG, PROMPT, STATE, drain_ahead, make_runner, reference, request
from tests.unit.engine.llm.support import drain, tokens
from voicegate.engine.llm.backend import (
    LlmPrompt,
    SequenceRequest,
)
from voicegate.engine.llm.cuda.draws import RepetitionAwareDraws, RepetitionPenaltyDraws
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.model.config import HeadBias, PenaltySamplingConfig, SamplingConfig, StopRule


def test_a_batch_of_everything_equals_the_cpu_runner() -> None:
    runner = make_runner()
    wanted = [
        request(0, seed=5),
        request(1, seed=6, num_text=9, max_tokens=6),  # 26 positions: cut in two passes of 16
        request(2, seed=7, num_text=6, is_streaming=True, max_tokens=8),
        request(3, num_text=0),
    ]
    for each in wanted:
        runner.add(each)
    runner.end_text(2)
    assert any(not output.tokens and not output.is_final for output in reference(wanted[2]))  # a forced fill
    outputs = drain(runner)
    for each in wanted:
        assert outputs[each.sequence_id] == reference(each)
    assert runner.num_free_slots == 4


def test_a_reused_slots_old_contents_do_not_matter() -> None:
    runner = make_runner(num_slots=1)
    runner.body.cache.fill_(torch.nan)
    draws = runner.body.draws
    assert isinstance(draws, RepetitionAwareDraws)
    draws.history.fill_(5)
    runner.add(request(0, seed=2))
    assert drain(runner)[0] == reference(request(0, seed=2))


def test_a_sequence_too_long_for_its_slot_fails_alone() -> None:
    runner = make_runner(max_positions=17, max_in_flight=2)
    runner.add(request(0, seed=0, max_tokens=4))  # 14 positions and 3 tokens that are fed again
    runner.add(request(1, seed=1, max_tokens=None))  # runs into the end of its slot
    runner.add(request(2, num_text=20))  # does not even begin
    outputs = drain_ahead(runner, depth=2)
    assert tokens(outputs[0]) == tokens(reference(request(0)))[:4]
    assert outputs[0][-1].is_truncated
    assert "17 positions" in str(outputs[1][-1].error)
    assert [output.error is None for output in outputs[2]] == [False]
    assert runner.num_free_slots == 4


def test_more_slots_than_lines_are_refused() -> None:
    with pytest.raises(ValueError, match="line bucket"):
        make_runner(num_slots=17)


@pytest.mark.parametrize("max_in_flight", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_text_that_grows_is_spoken_as_on_a_cpu(max_in_flight: int) -> None:
    """Also beside another sequence, with steps launched before the tokens of the last are known."""
    wanted = SequenceRequest(0, PROMPT, (), is_growing=True, seed=5, max_tokens=9)
    readings = (((10, 11), 2), ((10, 11, 12), 4), ((10, 11, 12, 13), None))
    runner = make_runner(max_in_flight=max_in_flight)
    cpu = TorchLlmRunner(CONFIG, SamplingConfig(), STATE, num_slots=1, max_positions=128)
    cpu.add(wanted)
    runner.add(wanted)
    runner.add(request(1, seed=6, max_tokens=5))
    for text_ids, until in readings:
        for each in (cpu, runner):
            each.read(0, text_ids, until=until)
        assert drain_ahead(runner, depth=max_in_flight)[0] == drain(cpu)[0]
    assert runner.num_free_slots == 4


@pytest.mark.parametrize("is_penalised", [False, True])
def test_a_reading_that_the_model_ends_is_gone_on_with_as_on_a_cpu(is_penalised: bool) -> None:
    """Steps that were launched ahead of its end leave nothing: neither draws nor what was fed. The last tells of it.

    Told sooner, it would be read again before it can go on, and nothing would say when it can.
    """
    config = replace(CONFIG, head_bias=HeadBias.USED)
    bias = torch.zeros(config.num_speech_rows)
    bias[config.eos_id] = 6.0
    state = {**STATE, "llm_decoder.bias": bias}
    sampling = PenaltySamplingConfig(temperature=1.5) if is_penalised else SamplingConfig()
    runner = make_runner(max_in_flight=3, config=config, sampling=sampling, state=state)
    cpu = TorchLlmRunner(config, sampling, state, num_slots=4, max_positions=128)
    num_spent = 0
    for seed in range(4):
        wanted = SequenceRequest(seed, PROMPT, (), is_growing=True, seed=seed, max_tokens=40)
        for each in (cpu, runner):
            each.add(wanted)
        for number, until in enumerate((20, 24, 28, 32)):
            for each in (cpu, runner):
                each.read(seed, (10, 11, *range(12, 13 + number)), until=until)
            expected, found = drain(cpu)[seed], drain_ahead(runner, depth=3)[seed]
            assert tokens(found) == tokens(expected)
            assert (found[-1].is_paused, found[-1].is_spent) == (expected[-1].is_paused, expected[-1].is_spent)
            assert not any(output.is_paused for output in found[:-1])
            num_spent += expected[-1].is_spent
    assert num_spent > 4


# --- another layout and another sampling -------------------------------------------------------------------


def test_another_familys_llm_equals_the_cpu_runner() -> None:
    """Bias in the head, ids that are fed and never drawn, a penalty on what was fed, other ends than special ids."""
    config = replace(
        CONFIG,
        needs_end_of_prompt=False,
        num_special_rows=198,
        num_unspoken_rows=2,
        sos_id=498,
        task_id=499,
        head_bias=HeadBias.USED,
        stop=StopRule(is_eos_alone=True, min_tokens_per_text_token=0, max_tokens_per_text_token=None, max_tokens=5),
    )
    bias = torch.zeros(498)
    bias[300:] = 1.0  # special ids come up, and only eos ends
    state = {**STATE, "llm_decoder.weight": STATE["llm_decoder.weight"][:498], "llm_decoder.bias": bias}
    sampling = PenaltySamplingConfig(temperature=1.5)
    cuda = make_runner(num_slots=2, max_in_flight=2, config=config, sampling=sampling, state=state)
    draws = cuda.body.draws
    assert isinstance(draws, RepetitionPenaltyDraws)
    draws.fed_by.fill_(9)  # by sequences before these
    prompt = LlmPrompt((1, 2), (5, 6, 7))
    wanted = [
        SequenceRequest(0, prompt, (10, 11), seed=5, max_tokens=5),
        SequenceRequest(1, prompt, (10, 11, 12), is_streaming=True, seed=6, max_tokens=4),
        SequenceRequest(2, prompt, (10, 11, 12), seed=7),
    ]
    cpu = TorchLlmRunner(config, sampling, state, num_slots=1, max_positions=128)
    num_unheard = 0
    for pair in (wanted[:2], wanted[2:]):  # the third in a slot that one of the others had
        for each in pair:
            cuda.add(each)
            if each.is_streaming:
                cuda.end_text(each.sequence_id)
        outputs = drain_ahead(cuda, depth=2)
        for each in pair:
            cpu.add(each)
            if each.is_streaming:
                cpu.end_text(each.sequence_id)
            expected = drain(cpu)[each.sequence_id]
            assert outputs[each.sequence_id] == expected
            num_unheard += sum(not output.tokens and not output.is_final for output in expected)
    assert num_unheard
