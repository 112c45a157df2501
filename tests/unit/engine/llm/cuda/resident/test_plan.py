"""Every share of a layer has one warp, which has room for it and fetches it before it is needed."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from voicegate.bench.kernels.floors import FULL
from voicegate.engine.llm.cuda.config import TileTable
from voicegate.engine.llm.cuda.resident.plan import BOX, GRANULE, NUM_SPLITS, Kind, ResidentPlan, make_plan
from voicegate.engine.model.config import LlmConfig

CONFIG = FULL.llm
H100_MULTIPROCESSORS, H100_BYTES = 132, 232_448


def plan_of(
    config: LlmConfig = CONFIG, *, num_programs: int = H100_MULTIPROCESSORS, shared_memory_bytes: int = H100_BYTES
) -> ResidentPlan | None:
    return make_plan(
        config, num_programs=num_programs, shared_memory_bytes=shared_memory_bytes, num_splits=4, decode_keys=128
    )


@pytest.fixture(scope="module")
def plan() -> ResidentPlan:
    made = plan_of()
    assert made is not None
    return made


def shares(plan: ResidentPlan) -> Counter[tuple[int, int]]:
    """Kind and rows of all that is fetched, in a layer and behind all layers."""
    found: Counter[tuple[int, int]] = Counter()
    for fetch in plan.fetches.reshape(-1, plan.fetches.shape[2]).tolist():
        if fetch[1] != Kind.NONE:
            found[fetch[1], fetch[2]] += 1
    return found


def test_all_rows_of_all_weights_are_fetched_once(plan: ResidentPlan) -> None:
    num_qkv_rows = CONFIG.hidden_size + 2 * CONFIG.num_kv_heads * CONFIG.head_dim
    wanted = {
        Kind.QKV: num_qkv_rows // GRANULE,
        Kind.OUT: CONFIG.hidden_size // GRANULE,
        Kind.GATE_UP: 2 * CONFIG.intermediate_size // GRANULE,
        Kind.DOWN: CONFIG.hidden_size // GRANULE * NUM_SPLITS,
        Kind.HEAD: -(-CONFIG.num_speech_rows // GRANULE),
    }
    assert shares(plan) == {(kind, rows): 1 for kind, number in wanted.items() for rows in range(number)}


def test_what_is_fetched_is_what_the_slots_warp_multiplies(plan: ResidentPlan) -> None:
    for program, fetches in enumerate(plan.fetches.tolist()):
        for warp, kind, rows, nth, per_layer, offset in (fetch for fetch in fetches if fetch[1] != Kind.NONE):
            first_kind, first, gate_up, head, own_offset = plan.warps[program, warp].tolist()
            assert offset == own_offset
            assert per_layer == (first_kind != Kind.NONE) + (gate_up >= 0)
            if kind == Kind.GATE_UP:
                assert (rows, nth) == (gate_up, per_layer - 1)
            elif kind == Kind.HEAD:
                assert (rows, nth) == (head, 0)
            else:
                assert (kind, rows, nth) == (first_kind, first, 0)


def test_slots_lie_apart_and_fit(plan: ResidentPlan) -> None:
    short_bytes = 2 * GRANULE * CONFIG.hidden_size
    long_bytes = 2 * GRANULE * CONFIG.intermediate_size // NUM_SPLITS
    for warps in plan.warps.tolist():
        end = 0
        for first_kind, _, gate_up, _, offset in warps:
            if first_kind == Kind.NONE and gate_up < 0:
                continue
            assert offset >= end
            assert offset % 1024 == 0
            end = offset + (long_bytes if first_kind == Kind.DOWN else short_bytes)
        assert end <= plan.shared_memory_bytes <= H100_BYTES


def test_a_residuals_rows_stay_with_one_program(plan: ResidentPlan) -> None:
    """Its `out` and its `down`, all splits, beside each other: decode_step.cu's project_down."""
    for program in range(CONFIG.hidden_size // GRANULE):
        kinds = plan.warps[program, :, 0].tolist()
        assert kinds[0] == Kind.OUT
        assert plan.warps[program, 0, 1] == program
        assert plan.warps[program, 2:6, :2].tolist() == [[Kind.DOWN, 4 * program + split] for split in range(4)]


def test_the_first_warp_has_a_part_in_what_its_program_does(plan: ResidentPlan) -> None:
    for warps in plan.warps:
        for column in (2, 3):
            is_first_one = warps[0, column] >= 0
            assert is_first_one or warps[0, 0] == Kind.OUT or not (warps[:, column] >= 0).any()
        assert not ((warps[1:, 0] == Kind.QKV) | (warps[1:, 0] == Kind.OUT)).any()
    assert plan.warps[plan.head_program, 0, 3] >= 0


def test_the_last_programs_attend_and_have_no_weights(plan: ResidentPlan) -> None:
    assert (plan.fetches[-CONFIG.num_kv_heads :, :, 1] == Kind.NONE).all()
    assert (plan.fetches[: -CONFIG.num_kv_heads, 0, 1] != Kind.NONE).all()


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, head_dim=32),
        replace(CONFIG, hidden_size=CONFIG.hidden_size + BOX),
        replace(CONFIG, intermediate_size=CONFIG.intermediate_size + 16),
        replace(CONFIG, intermediate_size=2 * CONFIG.intermediate_size),
        replace(CONFIG, num_kv_heads=1),
    ],
    ids=["small heads", "more than its heads", "odd splits", "more than there is room for", "too many heads a key"],
)
def test_a_model_that_the_kernel_is_not_made_for_has_no_plan(config: LlmConfig) -> None:
    assert plan_of(config) is None


def test_a_smaller_device_has_no_plan() -> None:
    assert plan_of(num_programs=114) is None
    assert plan_of(shared_memory_bytes=101_376) is None
    assert make_plan(CONFIG, num_programs=132, shared_memory_bytes=H100_BYTES, num_splits=1, decode_keys=128) is None


def test_a_layer_never_needs_more_fetches_than_the_kernel_looks_at(plan: ResidentPlan) -> None:
    kinds = plan.fetches[:, :, 1]
    for program in kinds:
        for part in (program[:16], program[16:]):
            number = int(np.count_nonzero(part))
            assert number < 16
            assert (part[:number] != Kind.NONE).all()


def test_the_plan_has_the_order_of_the_tiles_in_use() -> None:
    tiles = TileTable()
    assert tiles.down[0][1].num_splits == NUM_SPLITS
    assert tiles.attention.decode_keys == 128
