"""How the flow runs on CUDA: shapes to capture, precision of the context, and a switch for every optimisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

import torch

from voicegate.engine import units
from voicegate.engine.device.cuda_graphs import check_buckets
from voicegate.engine.policy.batch_size import BatchSize

KV_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn)
PRODUCT_DTYPES = (torch.float8_e4m3fn,)


@dataclass(frozen=True, slots=True)
class FlowCudaConfig:
    """Raises ValueError naming the field that does not fit."""

    # A batch's blocks lie one behind the other, and all their frames together are padded to the next bucket.
    # More -> less padding, a longer start. Of bench/kernels/tune_flow.py on an H200, where cuBLAS takes longer for 800,
    # 1600 and 3200 frames than for 900, 1700 and 3300.
    frame_buckets: tuple[int, ...] = (
        *(16, 32, 50, 100, 200, 300, 400, 500, 600, 700, 900, 1_000, 1_100, 1_200, 1_300, 1_400, 1_550, 1_700),
        *(1_850, 2_100, 2_350, 2_500, 2_700, 2_900, 3_100, 3_300, 3_550, 3_700, 3_950, 4_200),
    )
    # A stream's last block takes as many frames as it has; else every block takes 50.
    pack_frames: bool = True
    # Attention starts with the rows of long contexts: one that starts last would keep the GPU waiting.
    longest_first: bool = True
    # Batches that may run interleaved; each has its own buffers and graphs.
    num_lanes: int = 2
    # Of keys and values in the pool; None: as the activations. float8_e4m3fn halves 90 MB per second of context and
    # needs no scale: a trained model's keys stay below 11 and its values below 5, and the type's range is 2**-6 to 448.
    kv_dtype: torch.dtype | None = None
    # Of weights and inputs of a layer's four products in large batches; None: as the activations. float8_e4m3fn is
    # faster and less precise (docs/adr/0013); bfloat16 weights are kept beside, 0.2 GB more, for small batches.
    product_dtype: torch.dtype | None = None
    # Frames of a batch from which on it does so. Lower -> more error for less: 6 % of a step's time at 300 frames.
    float8_frames: int = 500
    use_graphs: bool = True
    # Kernels start while the one before still runs and wait inside (programmatic dependent launch).
    overlap_launches: bool = True
    # Triton kernels instead of torch's operations, part by part.
    fuse_input: bool = True  # input projection and positional convolutions
    fuse_norm: bool = True  # gate, residual and adaLN
    fuse_attention: bool = True  # rotary, write to the pool, paged attention
    fuse_linear: bool = True  # products of few lines; the others are cuBLAS's anyway
    fuse_gelu: bool = True  # in the product's epilogue
    fuse_output: bool = True  # output projection, CFG and the Euler step

    def __post_init__(self) -> None:
        check_buckets("frame_buckets", self.frame_buckets)
        if self.frame_buckets[-1] < units.FRAMES_PER_BLOCK:
            raise ValueError(f"frame_buckets are {self.frame_buckets}; one must hold a block of 50")
        if self.num_lanes < 1:
            raise ValueError(f"num_lanes is {self.num_lanes}; at least one batch must be able to run")
        if self.kv_dtype not in (None, *KV_DTYPES):
            raise ValueError(f"kv_dtype is {self.kv_dtype}; it must be one of {KV_DTYPES} or None")
        if self.product_dtype not in (None, *PRODUCT_DTYPES):
            raise ValueError(f"product_dtype is {self.product_dtype}; it must be one of {PRODUCT_DTYPES} or None")

    @property
    def max_batch(self) -> int:
        """Whole blocks in the largest bucket."""
        return self.frame_buckets[-1] // units.FRAMES_PER_BLOCK

    @property
    def sizes(self) -> tuple[BatchSize, ...]:
        """Of the buckets, ascending."""
        return _sizes(self.frame_buckets, is_packed=self.pack_frames)

    def size_for(self, frames_of_rows: Sequence[int]) -> BatchSize:
        """The smallest bucket that holds these blocks. Raises ValueError if none does."""
        num_rows, num_frames = len(frames_of_rows), sum(map(self.lines_of, frames_of_rows))
        for size in self.sizes:
            if num_rows <= size.num_rows and num_frames <= size.num_frames:
                return size
        raise ValueError(f"{num_rows} blocks of {num_frames} frames do not fit in the largest bucket, {self.sizes[-1]}")

    def lines_of(self, num_frames: int) -> int:
        """What a block of so many frames takes of a bucket."""
        return num_frames if self.pack_frames else units.FRAMES_PER_BLOCK

    def batch_size(self, max_rows: int) -> BatchSize:
        """The largest bucket that `max_rows` whole blocks fill; the smallest that takes one if none does."""
        whole = [size for size in self.sizes if size.num_frames >= units.FRAMES_PER_BLOCK]
        return max(
            (size for size in whole if size.num_frames <= max_rows * units.FRAMES_PER_BLOCK),
            key=attrgetter("num_frames"),
            default=whole[0],
        )


@cache
def _sizes(frame_buckets: tuple[int, ...], *, is_packed: bool) -> tuple[BatchSize, ...]:
    least = 1 if is_packed else units.FRAMES_PER_BLOCK
    return tuple(BatchSize(_rows_of(frames, is_packed), frames) for frames in frame_buckets if frames >= least)


def _rows_of(num_frames: int, is_packed: bool) -> int:
    """An eighth more than whole blocks, since some are shorter: about one in five, half as long on average."""
    num_whole = num_frames // units.FRAMES_PER_BLOCK
    if num_whole < 2:
        return 1
    return num_whole + max(num_whole // 8, 1) if is_packed else num_whole
