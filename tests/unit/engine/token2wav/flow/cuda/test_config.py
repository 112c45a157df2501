"""Buckets and switches: what is refused, and which bucket takes what."""

from typing import Any

import pytest
import torch

from engine.token2wav.flow.cuda.config import FlowCudaConfig

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_buckets": ()}, "batch_buckets"),
        ({"batch_buckets": (4, 2)}, "ascending"),
        ({"batch_buckets": (0, 2)}, "positive"),
        ({"frame_buckets": (16, 32)}, "end with 50"),
        ({"frame_buckets": (15, 50)}, "even"),
        ({"num_lanes": 0}, "num_lanes is 0"),
        ({"kv_dtype": torch.int8}, "kv_dtype is torch.int8"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlowCudaConfig(**fields)


def test_the_smallest_bucket_that_holds_it() -> None:
    config = FlowCudaConfig(batch_buckets=(1, 4, 6), frame_buckets=(16, 50))
    assert [config.batch_bucket(n) for n in range(1, 7)] == [1, 4, 4, 4, 6, 6]
    assert [config.frame_bucket(n) for n in (2, 16, 18, 50)] == [16, 16, 50, 50]
    assert config.max_batch == 6
    assert [config.unpadded_batch(n) for n in (1, 3, 4, 5, 6, 99)] == [1, 1, 4, 4, 6, 6]
    assert FlowCudaConfig(batch_buckets=(4,)).unpadded_batch(2) == 4
    with pytest.raises(ValueError, match="7 do not fit in the largest bucket that is captured, 6"):
        config.batch_bucket(7)
