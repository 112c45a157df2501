"""How the flow runs on CUDA: shapes to capture, precision of the context and of products. No Triton."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

import torch

from voicegate.engine.device.cuda_graphs import check_buckets
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK, BatchSize

PRODUCT_DTYPES = (torch.float8_e4m3fn,)


@dataclass(frozen=True, slots=True)
class FlowCudaConfig:
    """Raises ValueError naming the field that does not fit."""

    # A batch's blocks lie one behind the other, and all their frames together are padded to the next bucket.
    # More -> less padding, a longer start. cuBLAS's time is a staircase: of a sweep on an H200 (docs/adr/0013), those
    # that take the most off the batches of 128 and of 400 live streams.
    frame_buckets: tuple[int, ...] = (
        *(16, 32, 50, 100, 150, 200, 250, 300, 350, 400, 500, 550, 600, 650, 700, 768, 850, 900, 1_000, 1_100, 1_200),
        *(1_300, 1_400, 1_550, 1_700, 1_850, 2_100, 2_350, 2_500, 2_700, 2_900, 3_100, 3_300, 3_550, 3_700, 3_950),
        4_200,
    )
    # Batches that may run interleaved; each has its own buffers and graphs.
    max_batches: int = 2
    # For weights and inputs of a layer's four products in large batches; None: as the activations. float8_e4m3fn is
    # faster and less precise (docs/adr/0013); bfloat16 weights are kept beside, 0.2 GB more, for small batches.
    product_dtype: torch.dtype | None = None
    # Frames of a batch from which on it does so. Lower -> more error for less: 6 % of a step's time at 300 frames.
    float8_frames: int = 500
    has_graphs: bool = True  # False: the same kernels launched one by one

    def __post_init__(self) -> None:
        check_buckets("frame_buckets", self.frame_buckets)
        if self.frame_buckets[-1] < FRAMES_PER_BLOCK:
            raise ValueError(f"frame_buckets are {self.frame_buckets}; one must hold a block of 50")
        if self.max_batches < 1:
            raise ValueError(f"max_batches is {self.max_batches}; at least one batch must be able to run")
        if self.product_dtype not in (None, *PRODUCT_DTYPES):
            raise ValueError(f"product_dtype is {self.product_dtype}; it must be one of {PRODUCT_DTYPES} or None")

    @property
    def max_batch(self) -> int:
        """Whole blocks in the largest bucket."""
        return self.frame_buckets[-1] // FRAMES_PER_BLOCK

    @property
    def sizes(self) -> tuple[BatchSize, ...]:
        """The buckets' sizes, ascending."""
        return _sizes(self.frame_buckets)

    def size_for(self, frames_of_rows: Sequence[int]) -> BatchSize:
        """The smallest bucket that holds these blocks. Raises ValueError if none does."""
        num_rows, num_frames = len(frames_of_rows), sum(frames_of_rows)
        for size in self.sizes:
            if num_rows <= size.num_rows and num_frames <= size.num_frames:
                return size
        raise ValueError(f"{num_rows} blocks of {num_frames} frames do not fit in the largest bucket, {self.sizes[-1]}")

    def batch_size(self, max_rows: int) -> BatchSize:
        """The largest bucket that `max_rows` whole blocks fill; the smallest that takes one if none does."""
        whole = [size for size in self.sizes if size.num_frames >= FRAMES_PER_BLOCK]
        return max(
            (size for size in whole if size.num_frames <= max_rows * FRAMES_PER_BLOCK),
            key=attrgetter("num_frames"),
            default=whole[0],
        )


@cache
def _sizes(frame_buckets: tuple[int, ...]) -> tuple[BatchSize, ...]:
    return tuple(BatchSize(_rows_of(frames), frames) for frames in frame_buckets)


def _rows_of(num_frames: int) -> int:
    """An eighth more than whole blocks, since some are shorter: about one in five, half as long on average."""
    num_whole = num_frames // FRAMES_PER_BLOCK
    if num_whole < 2:
        return 1
    return num_whole + max(num_whole // 8, 1)
