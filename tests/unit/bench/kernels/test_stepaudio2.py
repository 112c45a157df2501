"""What is timed of the second family: every bucket once, on a CPU, at the golden modules' sizes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.stepaudio2 import flow_config, golden_vocoder_config
from voicegate.bench.kernels import stepaudio2
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.token2wav.stepaudio2.flow.bucket_solver import BucketConfig
from voicegate.engine.token2wav.stepaudio2.vocoder.bucket_caller import CallConfig

pytestmark = pytest.mark.unit

MODEL = replace(load_model_config(TINY_MODEL_DIR), flow=flow_config(), vocoder=golden_vocoder_config())
CPU = torch.device("cpu")


def called(work: Callable[[], object]) -> float:
    work()
    return 0.5


def test_every_bucket_is_timed() -> None:
    buckets = BucketConfig(token_buckets=(4,), row_buckets=(1, 2), known_buckets=(20, 40), has_graphs=False)
    result = stepaudio2.flow(MODEL, buckets, device=CPU, dtype=torch.float32, timed_ms=called)
    assert result == {"num_graphs": 0} | {
        f"{rows} x 4 behind {known}": {"begin_ms": 0.5, "block_ms": 0.5} for rows in (1, 2) for known in (20, 40)
    }
    calls = CallConfig(frame_buckets=(12,), row_buckets=(1, 2), has_graphs=False)
    result = stepaudio2.vocoder(MODEL, calls, device=CPU, timed_ms=called)
    assert result == {"num_graphs": 0, "1 x 12": 0.5, "2 x 12": 0.5}
