"""EngineConfig refuses what is none of a field's choices, by name, and every choice is one that the loader knows."""

from pathlib import Path
from typing import Any

import pytest

from engine import loading
from engine.config import KV_DTYPES, PRECISIONS, VOCODER_PRECISIONS, EngineConfig
from engine.token2wav.vocoder.cuda.config import PRECISIONS as VOCODER_KERNELS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu'; it must be one of auto, cpu, cuda"),
        ({"precision": "float16"}, "precision is 'float16'; it must be one of bfloat16, float32"),
        ({"kv_dtype": "int8"}, "kv_dtype is 'int8'; it must be one of bfloat16, float32, float8"),
        (
            {"vocoder_precision": "fp8"},
            "vocoder_precision is 'fp8'; it must be one of float16, bfloat16, tf32, float32",
        ),
        ({"without": ("lm.has_graphs",)}, "without has 'lm.has_graphs'; it must be PART.SWITCH with PART one of llm"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_choices(field: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(Path("m"), **field)


def test_choices_are_what_the_loader_knows() -> None:
    assert set(PRECISIONS) == set(loading._DTYPES)
    assert set(KV_DTYPES) == set(loading._KV_DTYPES)
    assert set(VOCODER_PRECISIONS) == set(VOCODER_KERNELS)


def test_what_is_left_open_suits_the_device() -> None:
    told = EngineConfig(Path("m"), max_active_clauses=3)
    for device_type in ("cpu", "cuda"):
        resolved = told.resolved(device_type)
        assert resolved.max_active_clauses == 3
        assert min(resolved.max_utterances, resolved.max_flow_batch, resolved.first_block_tokens) > 0
