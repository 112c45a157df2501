"""How the flow runs on CUDA: shapes to capture, precision of the context, and a switch for every optimisation."""

from dataclasses import dataclass

import torch

from engine import units
from engine.cuda_graphs import bucket_for, check_buckets

KV_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn)


@dataclass(frozen=True, slots=True)
class FlowCudaConfig:
    """Raises ValueError naming the field that does not fit."""

    # A batch is padded to the next bucket of rows, and its blocks to the next of frames. More -> less padding, a longer
    # start. Measured on an H200, where cuBLAS needs longer for 16, 32 and 64 rows than for 18, 34 and 63, and the least
    # a row for 42 and 84: their products are whole waves of tiles.
    batch_buckets: tuple[int, ...] = (1, 2, 4, 6, 8, 10, 12, 14, 18, 22, 28, 34, 42, 52, 63, 84)
    frame_buckets: tuple[int, ...] = (16, 32, units.FRAMES_PER_BLOCK)
    # Batches that may run interleaved; each has its own buffers and graphs.
    num_lanes: int = 2
    # Of keys and values in the pool; None: as the activations. float8_e4m3fn halves 90 MB per second of context and
    # needs no scale: a trained model's keys stay below 11 and its values below 5, and the type's range is 2**-6 to 448.
    kv_dtype: torch.dtype | None = None
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
        for name in ("batch_buckets", "frame_buckets"):
            check_buckets(name, getattr(self, name))
        if self.frame_buckets[-1] != units.FRAMES_PER_BLOCK or any(
            n % units.FRAMES_PER_TOKEN for n in self.frame_buckets
        ):
            raise ValueError(
                f"frame_buckets are {self.frame_buckets}; they must be even and end with 50, a whole block"
            )
        if self.num_lanes < 1:
            raise ValueError(f"num_lanes is {self.num_lanes}; at least one batch must be able to run")
        if self.kv_dtype not in (None, *KV_DTYPES):
            raise ValueError(f"kv_dtype is {self.kv_dtype}; it must be one of {KV_DTYPES} or None")

    @property
    def max_batch(self) -> int:
        return self.batch_buckets[-1]

    def batch_bucket(self, num_rows: int) -> int:
        """Raises ValueError if no bucket holds so many."""
        return bucket_for(self.batch_buckets, num_rows)

    def unpadded_batch(self, limit: int) -> int:
        """The largest bucket up to `limit`; the smallest of all if none is."""
        return max((bucket for bucket in self.batch_buckets if bucket <= limit), default=self.batch_buckets[0])

    def frame_bucket(self, num_frames: int) -> int:
        return bucket_for(self.frame_buckets, num_frames)
