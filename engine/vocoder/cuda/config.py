"""How the vocoder runs on CUDA: shapes to capture and precision. No Triton."""

from dataclasses import dataclass
from typing import Final

import torch

from voicegate.engine.device.cuda_graphs import bucket_for, check_buckets


@dataclass(frozen=True, slots=True)
class Precision:
    """Precision of the filter's products. Sums, residuals, the pitch and the excitation are never less than float32."""

    dtype: torch.dtype  # of weights and of what convolutions read
    product: str  # Triton's name for how float32 operands are multiplied
    block_k: int  # channels per step of a product
    is_rounded_to_tf32: bool = False
    has_fast_sine: bool = True


PRECISIONS: Final = {
    "float32": Precision(torch.float32, "ieee", 32, has_fast_sine=False),
    "tf32": Precision(torch.float32, "tf32", 32, is_rounded_to_tf32=True),
    "float16": Precision(torch.float16, "ieee", 64),
    "bfloat16": Precision(torch.bfloat16, "ieee", 64),
}


@dataclass(frozen=True, slots=True)
class Tile:
    """One program's share of a convolution."""

    columns: int
    outputs: int
    num_warps: int
    num_stages: int  # loads in flight
    cost: float  # of a program, relative to the others
    num_slices: int = 1  # 1, 2 or 4: of the columns, finished one after the other. More -> fewer registers
    max_registers: int | None = None  # of a thread
    depth: int = 1  # of a step, in the precision's block_k


# The fastest that were tried for float16 on an H200. Of each, two or more programs share a multiprocessor, so that
# one's loads and stores hide behind another's products.
MATRIX_UNIT_TILES: Final = (
    Tile(128, 128, 8, 3, 1.0, num_slices=4, max_registers=128),
    Tile(64, 128, 8, 4, 0.62, num_slices=2, max_registers=128),
    Tile(128, 64, 4, 3, 0.62, num_slices=2),
    Tile(32, 64, 4, 4, 0.22, depth=2),
    Tile(16, 64, 4, 4, 0.13, depth=2),
    Tile(64, 32, 4, 4, 0.45),
)
FLOAT32_TILES: Final = (Tile(32, 32, 4, 2, 1.0),)  # without matrix units: larger ones spill


@dataclass(frozen=True, slots=True)
class VocoderCudaConfig:
    """Raises ValueError naming the field that does not fit."""

    # float16 has the same 10 bits as tf32, upstream's own, at twice the rate; see PRECISIONS.
    precision: str = "float16"
    # A call is padded to the next bucket of streams and of frames; a longer job takes several calls. Idle rows and
    # the columns beyond a row's own cost a program's start each, so buckets may be coarse.
    batch_buckets: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    frame_buckets: tuple[int, ...] = (8, 20, 32, 56)  # a last block brings 50 and the 4 that were held back
    has_graphs: bool = True  # False: the same kernels launched one by one
    # The excitation's branches run beside the filter's first stages; False: before them, which changes no sample.
    has_side_streams: bool = True
    # A convolution takes the one with which a multiprocessor's share of its programs costs least; the first of equals.
    # One at least has 32 outputs. Empty: those of the precision.
    tiles: tuple[Tile, ...] = ()
    num_multiprocessors: int = 132

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision is {self.precision!r}; it must be one of {', '.join(PRECISIONS)}")
        for name in ("batch_buckets", "frame_buckets"):
            check_buckets(name, getattr(self, name))

    @property
    def max_batch(self) -> int:
        return self.batch_buckets[-1]

    @property
    def max_frames(self) -> int:
        return self.frame_buckets[-1]

    def batch_bucket(self, num_rows: int) -> int:
        """The smallest that holds so many; at most max_batch."""
        return bucket_for(self.batch_buckets, num_rows)

    def frame_bucket(self, num_frames: int) -> int:
        """The smallest that holds so many; at most max_frames."""
        return bucket_for(self.frame_buckets, num_frames)

    def tile(self, *, num_columns: int, num_outputs: int, num_products: int) -> Tile:
        """For `num_products` convolutions at once, each [num_columns, num_outputs]."""
        tiles = self.tiles or (FLOAT32_TILES if self.precision == "float32" else MATRIX_UNIT_TILES)

        def cost(tile: Tile) -> float:
            num_programs = -(-num_columns // tile.columns) * (num_outputs // tile.outputs) * num_products
            return -(-num_programs // self.num_multiprocessors) * tile.cost

        return min((tile for tile in tiles if num_outputs % tile.outputs == 0), key=cost)
