"""Floors of the kernels against the released model's known sizes: parameters, and operations a frame."""

import pytest

from voicegate.bench.kernels.floors import (
    FLOP_PER_S,
    FULL,
    MEMORY_BYTES_PER_S,
    Cost,
    flow_block,
    llm_kernels,
    llm_prefill,
    llm_step,
    total,
    vocoder_call,
)


def test_a_floor_is_the_longer_of_memory_and_arithmetic() -> None:
    assert Cost(MEMORY_BYTES_PER_S, 0).floor_us() == 1e6
    assert Cost(0, FLOP_PER_S["tf32"]).floor_us("tf32") == 1e6
    assert Cost(MEMORY_BYTES_PER_S, 3 * FLOP_PER_S["float16"]).floor_us("float16") == 3e6


def test_the_llm_reads_its_body_once_a_step() -> None:
    # 24 layers of 14,909,440 weights in products, and 6761 outputs of the head; two bytes each.
    one = llm_step(FULL.llm, 1, 1, 0)
    assert one.num_bytes == 2 * (24 * 14_909_440 + 6_761 * 896) + 4 * 6_761
    many = llm_step(FULL.llm, 256, 256, 0)
    assert many.flop == 256 * one.flop
    assert many.num_bytes - one.num_bytes == 255 * 4 * 6_761


def test_a_position_of_llm_context_is_512_bytes_a_layer() -> None:
    assert llm_kernels(FULL.llm, 1, 1)["attend"].num_bytes == 2 * 2 * 64 * 2


def test_a_prefill_is_its_passes() -> None:
    single = llm_prefill(FULL.llm, 1, 180, lines_per_pass=1024)
    assert single == llm_step(FULL.llm, 180, 1, 90.5)
    # 16 prompts: 2880 lines, three passes and so three times the weights.
    passes = [llm_step(FULL.llm, num_lines, 16, 90.5) for num_lines in (1024, 1024, 832)]
    assert llm_prefill(FULL.llm, 16, 180, lines_per_pass=1024) == total(passes)


def test_the_flow_computes_378_mflop_a_frame_and_90_for_each_attended() -> None:
    num_steps_and_halves = 20
    block, longer = (flow_block(FULL.flow, 1, context) for context in (0, 1))
    per_attended = longer.flop - block.flop
    assert per_attended == pytest.approx(90.1e6, rel=1e-3)
    alone = block.flop - 50 * per_attended
    assert alone / 50 / num_steps_and_halves == pytest.approx(378.05e6, rel=1e-3)


def test_the_flow_reads_379_mb_of_weights_a_step_and_its_context_once_a_block() -> None:
    block, longer = (flow_block(FULL.flow, 1, context) for context in (0, 1))
    per_frame = longer.num_bytes - block.num_bytes
    assert per_frame == 2 * 901_120
    assert (block.num_bytes - 50 * per_frame) / 10 == pytest.approx(379e6, rel=1e-2)


def test_the_vocoder_computes_less_than_its_layers_state_by_what_upsampling_folds() -> None:
    # 673.8 MFLOP a frame as upstream's layers state them: 6.6 of the pitch are not counted, and of 76.2 for
    # upsampling 3 of 16, 11 and 7 taps are left.
    folded = 2 * 3 * (512 * 256 * 8 + 256 * 128 * 40 + 128 * 64 * 120)
    stated = 2 * (512 * 256 * 8 * 16 + 256 * 128 * 40 * 11 + 128 * 64 * 120 * 7)
    frame = vocoder_call(FULL.vocoder, 1, 1)
    assert frame.flop == pytest.approx(673.8e6 - 6.62e6 - stated + folded, rel=1e-3)
    assert vocoder_call(FULL.vocoder, 32, 50).flop == 1_600 * frame.flop


def test_the_vocoder_reads_its_weights_once_a_call() -> None:
    one, many = (vocoder_call(FULL.vocoder, streams, 50) for streams in (1, 32))
    assert one.num_bytes == many.num_bytes < 2 * 20_779_887
