"""Buckets: what is refused, and which bucket takes what."""

from typing import Any

import pytest
import torch

from voicegate.engine.flow.chunking import BatchSize
from voicegate.engine.flow.cuda.config import FlowCudaConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"frame_buckets": ()}, "frame_buckets"),
        ({"frame_buckets": (100, 50)}, "ascending"),
        ({"frame_buckets": (0, 50)}, "positive"),
        ({"frame_buckets": (16, 32)}, "one must hold a block of 50"),
        ({"max_batches": 0}, "max_batches is 0"),
        ({"product_dtype": torch.int8}, "product_dtype is torch.int8"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlowCudaConfig(**fields)


def test_the_smallest_bucket_that_holds_it() -> None:
    config = FlowCudaConfig(frame_buckets=(16, 50, 200, 300))
    sizes = [BatchSize(1, 16), BatchSize(1, 50), BatchSize(5, 200), BatchSize(7, 300)]
    assert list(config.sizes) == sizes
    batches = [[2], [16], [18], [50], [2, 2], [50] * 4, [50, 50, 50, 30, 20], [2] * 6, [50] * 6]
    assert [sizes.index(config.size_for(batch)) for batch in batches] == [0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert config.max_batch == 6
    for batch in ([50] * 6 + [2], [2] * 8):
        with pytest.raises(ValueError, match=f"{len(batch)} blocks of {sum(batch)} frames do not fit"):
            config.size_for(batch)


def test_what_whole_blocks_fill() -> None:
    config = FlowCudaConfig(frame_buckets=(16, 50, 200, 300))
    assert [config.batch_size(n).num_frames for n in (1, 3, 4, 5, 6, 99)] == [50, 50, 200, 200, 300, 300]
    assert FlowCudaConfig(frame_buckets=(16, 200)).batch_size(2) == BatchSize(5, 200)
