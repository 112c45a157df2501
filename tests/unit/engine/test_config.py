"""EngineConfig refuses what is none of a field's choices, by name, and every choice is one that the loader knows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from voicegate.engine.config import (
    FLOW_PRODUCTS,
    KV_DTYPES,
    PRECISIONS,
    REFERENCE_GPU,
    VOCODER_PRECISIONS,
    EngineConfig,
)
from voicegate.engine.load import devices
from voicegate.engine.vocoder.cuda.config import PRECISIONS as VOCODER_KERNELS


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu'; it must be one of auto, cpu, cuda"),
        ({"precision": "float16"}, "precision is 'float16'; it must be one of bfloat16, float32"),
        ({"kv_dtype": "int8"}, "kv_dtype is 'int8'; it must be one of auto, bfloat16, float32, float8"),
        ({"flow_products": "int8"}, "flow_products is 'int8'; it must be one of precision, float8"),
        (
            {"vocoder_precision": "fp8"},
            "vocoder_precision is 'fp8'; it must be one of float16, bfloat16, tf32, float32",
        ),
    ],
)
def test_a_wrong_choice_is_refused_with_the_choices(field: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(Path("m"), **field)


def test_choices_are_what_the_loader_knows() -> None:
    assert set(PRECISIONS) == set(devices.DTYPES)
    assert set(KV_DTYPES) == {"auto", *devices.KV_DTYPES}
    assert set(FLOW_PRODUCTS) == set(devices.PRODUCT_DTYPES)
    assert set(VOCODER_PRECISIONS) == set(VOCODER_KERNELS)


def test_what_is_left_open_suits_the_device() -> None:
    told = EngineConfig(Path("m"), max_active_clauses=3)
    for device_type in ("cpu", "cuda"):
        resolved = told.resolved(device_type)
        assert resolved.max_active_clauses == 3
        assert resolved.max_buffered_flow_batch >= resolved.max_flow_batch
        assert min(resolved.max_utterances, resolved.max_flow_batch, resolved.first_block_tokens) > 0


def test_a_cpu_that_decodes_by_torch_has_more_to_play_while_it_makes_the_second_block() -> None:
    config = EngineConfig(Path("m"))
    slower = config.resolved("cpu", decodes_in_c=False)
    assert (slower.first_block_tokens, config.resolved("cpu").first_block_tokens) == (17, 12)
    assert slower.whole_first_block_tokens == 17
    assert replace(config, first_block_tokens=9).resolved("cpu", decodes_in_c=False).first_block_tokens == 9


@pytest.mark.parametrize(
    ("device_type", "has_float8", "precision", "expected"),
    [
        ("cuda", True, "bfloat16", "float8"),
        ("cuda", False, "bfloat16", "bfloat16"),
        ("cuda", True, "float32", "float32"),
        ("cpu", True, "bfloat16", "float32"),
    ],
)
def test_the_context_is_half_as_large_where_the_gpu_can(
    device_type: str, has_float8: bool, precision: str, expected: str
) -> None:
    gpu = replace(REFERENCE_GPU, has_float8=has_float8)
    config = EngineConfig(Path("m"), precision=precision)
    assert config.resolved(device_type, gpu).kv_dtype == expected
    assert replace(config, kv_dtype="bfloat16").resolved(device_type, gpu).kv_dtype == "bfloat16"


@pytest.mark.parametrize(("gib", "expected"), [(1, 16), (24, 80), (80, 256), (140, 448), (500, 448)])
def test_a_larger_gpu_speaks_more_clauses_at_once(gib: int, expected: int) -> None:
    gpu = replace(REFERENCE_GPU, memory_bytes=gib << 30)
    assert EngineConfig(Path("m")).resolved("cuda", gpu).max_active_clauses == expected


@pytest.mark.parametrize(
    ("num_multiprocessors", "expected"), [(1, (1, 1)), (58, (14, 36)), (132, (34, 84)), (200, (34, 84))]
)
def test_a_smaller_gpu_solves_fewer_blocks_in_a_call(num_multiprocessors: int, expected: tuple[int, int]) -> None:
    gpu = replace(REFERENCE_GPU, num_multiprocessors=num_multiprocessors)
    resolved = EngineConfig(Path("m")).resolved("cuda", gpu)
    assert (resolved.max_flow_batch, resolved.max_buffered_flow_batch) == expected


def test_who_limits_the_flows_batches_limits_all_of_them() -> None:
    resolved = EngineConfig(Path("m"), max_flow_batch=16).resolved("cuda")
    assert (resolved.max_flow_batch, resolved.max_buffered_flow_batch) == (16, 16)


@pytest.mark.parametrize("name", ["first_block_tokens", "whole_first_block_tokens"])
@pytest.mark.parametrize("num_tokens", [-1, 23, 25])
def test_a_first_block_that_does_not_fit_a_block_is_refused(name: str, num_tokens: int) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {num_tokens}; a flow block has room for 1 to 22 after a prompt"):
        replace(EngineConfig(Path("m")), **{name: num_tokens})


@pytest.mark.parametrize(
    ("device_type", "memory_gib", "told", "expected"),
    [
        ("cuda", 140, {}, (10, 5)),
        ("cuda", 80, {}, (10, 5)),
        ("cuda", 24, {}, (10, 10)),  # whose memory is for contexts
        ("cpu", 140, {}, (12, 12)),
        ("cuda", 140, {"first_block_tokens": 17}, (17, 17)),  # who wants more of it wants it of all texts
        ("cuda", 140, {"whole_first_block_tokens": 8}, (10, 8)),
        ("cuda", 24, {"whole_first_block_tokens": 8}, (10, 8)),
        ("cpu", 8, {"whole_first_block_tokens": 8}, (12, 8)),
    ],
)
def test_first_blocks_are_what_suits_a_text_where_there_is_room_for_it(
    device_type: str, memory_gib: int, told: dict[str, int], expected: tuple[int, ...]
) -> None:
    gpu = replace(REFERENCE_GPU, memory_bytes=memory_gib << 30)
    resolved = replace(EngineConfig(Path("m")), **told).resolved(device_type, gpu)  # type: ignore[arg-type]
    assert (resolved.first_block_tokens, resolved.whole_first_block_tokens) == expected
