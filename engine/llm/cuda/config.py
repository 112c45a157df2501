"""How the CUDA runner is cut: tiles, buckets and the off switch of each optimisation. No torch."""

from dataclasses import dataclass, replace

from voicegate.engine.llm.runner import MAX_STEPS_OF_ONE

# Line counts with a CUDA graph of their own. More -> less padding; fewer -> a shorter start.
LINE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)


@dataclass(frozen=True, slots=True)
class Tile:
    """One program's share of a matrix product, and how it reads it."""

    block_m: int  # lines of activations
    block_n: int  # outputs: of the weight
    block_k: int
    num_stages: int  # loads in flight; more -> more shared memory, fewer programs on a multiprocessor; changes no bit
    num_warps: int = 4
    num_splits: int = 1  # along k: that many programs share an output, and add their parts in a fixed order


@dataclass(frozen=True, slots=True)
class AheadTile:
    """A tile of up to `block_m` lines, whose program has all its weights in shared memory: ahead_kernels."""

    block_n: int
    block_k: int
    num_splits: int = 1
    block_m: int = 8

    @property
    def num_warps(self) -> int:
        return self.block_n // 8


@dataclass(frozen=True, slots=True)
class AheadTiles:
    """For Qwen2-0.5B on an H200. Smaller tiles -> more programs, which fit beside the last kernel's."""

    qkv: AheadTile = AheadTile(16, 128)
    out: AheadTile = AheadTile(32, 128)
    gate_up: AheadTile = AheadTile(32, 128)
    down: AheadTile = AheadTile(32, 64, num_splits=4)
    head: AheadTile = AheadTile(32, 128)


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Keys are summed tile after tile, so how many a tile has belongs to the order of summation."""

    block_keys: int = 64  # of lines that are fed
    decode_keys: int = 128  # of a line that decodes; higher -> fewer tiles wait for one another, fewer programs fit
    num_stages: int = 3
    overlapped_stages: int = 4  # where kernels overlap: all tiles but one are asked for before the query is there
    num_warps: int = 4
    num_rows: int = 64  # lines times heads of a tile of what is fed; higher -> keys are read less often


WEIGHTS = ("qkv", "out", "gate_up", "down", "head")

# (largest number of lines, tile), ascending; the last one takes any number.
TileChoice = tuple[tuple[int, Tile], ...]


@dataclass(frozen=True, slots=True)
class TileTable:
    """Tiles for each weight by the number of lines: the fastest that were tried for Qwen2-0.5B on an H200, in bfloat16.

    A weight's tiles here give the same bits (tests/gpu checks it): what an output
    sums, and in which order, depends on `num_splits` alone. Raises ValueError for tables that break this.
    """

    qkv: TileChoice = (
        (16, Tile(16, 16, 128, 7, num_warps=2)),
        (64, Tile(32, 32, 128, 6)),
        (192, Tile(64, 32, 128, 5)),
        (640, Tile(64, 64, 64, 5)),
        (1024, Tile(64, 128, 64, 4)),
    )
    out: TileChoice = (
        (64, Tile(16, 32, 128, 7, num_warps=2)),
        (256, Tile(64, 32, 128, 5)),
        (1024, Tile(64, 64, 64, 5)),
    )
    gate_up: TileChoice = (
        (32, Tile(16, 64, 128, 4, num_warps=2)),
        (64, Tile(64, 64, 64, 5)),
        (192, Tile(64, 128, 64, 4)),
        (320, Tile(64, 128, 64, 3)),
        (384, Tile(128, 128, 64, 3, num_warps=8)),
        (512, Tile(64, 128, 64, 3)),
        (1024, Tile(128, 128, 64, 3, num_warps=8)),
    )
    down: TileChoice = (
        (16, Tile(16, 32, 64, 12, num_splits=4)),
        (64, Tile(64, 32, 64, 8, num_splits=4)),
        (128, Tile(64, 64, 64, 5, num_splits=4)),
        (640, Tile(64, 64, 64, 4, num_splits=4)),
        (1024, Tile(64, 128, 64, 4, num_splits=4)),
    )
    head: TileChoice = ((16, Tile(16, 64, 128, 5)), (64, Tile(64, 64, 64, 5)), (1024, Tile(64, 128, 64, 4)))
    overlapped_lines: int = 16  # of a step whose kernels overlap; higher -> less of the device for the flow beside it
    ahead: AheadTiles | None = AheadTiles()  # of few lines, where kernels overlap; None: as all others
    attention: AttentionTile = AttentionTile()
    num_draw_warps: int = 8

    def __post_init__(self) -> None:
        for name in WEIGHTS:
            choice: TileChoice = getattr(self, name)
            ahead = () if self.ahead is None else (getattr(self.ahead, name),)
            if len({tile.num_splits for tile in (*ahead, *(tile for _, tile in choice))}) != 1:
                raise ValueError(f"{name}: all tiles of a weight need the same num_splits")


def tile_for(choice: TileChoice, num_lines: int) -> Tile:
    return next((tile for largest, tile in choice if num_lines <= largest), choice[-1][1])


@dataclass(frozen=True, slots=True)
class CudaLlmConfig:
    """The runner's optimisations; every one of them can be turned off."""

    has_graphs: bool = True  # False: the same kernels launched one by one
    overlaps: bool = True  # kernels begin while the last one runs, where the GPU can; False: each waits for its end
    # Steps of one sequence on the device; 1: the next waits for the token of the last.
    max_in_flight: int = MAX_STEPS_OF_ONE
    line_buckets: tuple[int, ...] = LINE_BUCKETS
    tiles: TileTable | None = None  # None: `default_tiles`


_HEAD_DIM = 64  # Qwen2-0.5B's
_QUERY_BYTES = 4096  # and what reductions take

# Exact float32 takes twice the shared memory a number, and has no tensor cores to feed.
_FLOAT32_CHOICE = ((1, Tile(64, 32, 32, 3)),)


def default_tiles(*, is_float32: bool, shared_memory_bytes: int | None = None) -> TileTable:
    """`shared_memory_bytes` that a program may take; None: as much as an H200's 227 KB."""
    if is_float32:
        choice = _FLOAT32_CHOICE
        attention = AttentionTile(decode_keys=64, overlapped_stages=3)
        return TileTable(
            qkv=choice, out=choice, gate_up=choice, down=choice, head=choice, ahead=None, attention=attention
        )
    tiles = TileTable()
    if shared_memory_bytes is None:
        return tiles
    return replace(
        tiles,
        qkv=_fitting(tiles.qkv, shared_memory_bytes),
        out=_fitting(tiles.out, shared_memory_bytes),
        gate_up=_fitting(tiles.gate_up, shared_memory_bytes),
        down=_fitting(tiles.down, shared_memory_bytes),
        head=_fitting(tiles.head, shared_memory_bytes),
        attention=_fitting_attention(tiles.attention, shared_memory_bytes),
    )


def _fitting(choice: TileChoice, shared_memory_bytes: int) -> TileChoice:
    """These tiles, with no more stages than have room."""

    def fit(tile: Tile) -> Tile:
        stage_bytes = 2 * (tile.block_m + tile.block_n) * tile.block_k
        return replace(tile, num_stages=max(1, min(tile.num_stages, shared_memory_bytes // stage_bytes)))

    return tuple((largest, fit(tile)) for largest, tile in choice)


def _fitting_attention(tile: AttentionTile, shared_memory_bytes: int) -> AttentionTile:
    """With no more of these stages than have room: each but one holds a tile of keys and one of values."""
    stage_bytes = 2 * 2 * tile.decode_keys * _HEAD_DIM
    num_stages = 1 + (shared_memory_bytes - _QUERY_BYTES) // stage_bytes
    return replace(tile, overlapped_stages=max(1, min(tile.overlapped_stages, num_stages)))
