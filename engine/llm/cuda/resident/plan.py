"""Which program of decode_step.cu does what: each warp's share of every layer's weights, and when it is fetched.

A warp has a slot of shared memory and, of each layer, up to two shares of 16 rows that lie in it one after the other.
So a program holds the next layer's weights while it waits, and the slots are what is short: a layer's weights are 226
KB a multiprocessor of an H100 or H200, which has 227. No torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from voicegate.engine.model.config import LlmConfig

NUM_WARPS: Final = 8  # that compute; one more fetches
NUM_SPLITS: Final = 4  # of `down`, as in config.TileTable
GRANULE: Final = 16  # rows of a share
BOX: Final = 64  # inputs: a row's 128 bytes, which a tensor map swizzles
MAX_KEYS: Final = 512  # before the line's own; higher -> more shared memory and registers
DECODE_KEYS: Final = 128  # config.AttentionTile's
_NUM_FETCHES: Final = 16  # of a layer at most
_OUT_SHORTS: Final = 2  # slots of a program of `out` and `down` for rows of `hidden_size` inputs
_SLOT_ALIGNMENT: Final = 1024  # of what a tensor map swizzles


class Kind(IntEnum):
    """As model.cuh numbers them."""

    NONE = 0
    QKV = 1
    OUT = 2
    GATE_UP = 3
    DOWN = 4
    HEAD = 5


# Columns of `ResidentPlan.warps`, struct Plan.
_FIRST_KIND, _FIRST, _GATE_UP, _HEAD, _OFFSET = range(5)


@dataclass(frozen=True, slots=True)
class ResidentPlan:
    """`warps` [programs, NUM_WARPS, 5], `fetches` [programs, 2 * _NUM_FETCHES, 6]: model.cuh's Plan and Fetch."""

    warps: npt.NDArray[np.int32]
    fetches: npt.NDArray[np.int32]
    shared_memory_bytes: int

    @property
    def num_programs(self) -> int:
        return len(self.warps)

    @property
    def head_program(self) -> int:
        """One of those that have a share of the head."""
        return int(np.argwhere(self.warps[:, 0, _HEAD] >= 0)[0, 0])


def make_plan(
    config: LlmConfig, *, num_programs: int, shared_memory_bytes: int, num_splits: int, decode_keys: int
) -> ResidentPlan | None:
    """For a device of so many multiprocessors; None where the model does not fit, or the kernel is not made for it.

    `num_splits` and `decode_keys`: of the kernels whose order of summation it has to have.
    """
    sizes = _Sizes(config)
    if (num_splits, decode_keys) != (NUM_SPLITS, DECODE_KEYS) or not sizes.are_possible:
        return None
    num_out = config.hidden_size // GRANULE
    num_qkv = num_out + 2 * config.num_kv_heads * config.head_dim // GRANULE
    room_bytes = shared_memory_bytes - sizes.fixed_bytes
    num_shorts = min(NUM_WARPS, room_bytes // sizes.short_bytes)
    first_attending = num_programs - config.num_kv_heads
    if num_out + num_qkv > first_attending or max(sizes.out_bytes, sizes.attention_bytes) > room_bytes:
        return None
    warps = np.full((num_programs, NUM_WARPS, 5), -1, np.int32)
    warps[:, :, _FIRST_KIND] = Kind.NONE
    warps[:num_out, 0, : _FIRST + 1] = [(Kind.OUT, granule) for granule in range(num_out)]
    for granule, split in product(range(num_out), range(NUM_SPLITS)):
        warps[granule, _OUT_SHORTS + split, : _FIRST + 1] = Kind.DOWN, granule * NUM_SPLITS + split
    warps[num_out : num_out + num_qkv, 0, : _FIRST + 1] = [(Kind.QKV, granule) for granule in range(num_qkv)]
    shorts = [(program, warp) for warp in range(num_shorts) for program in range(num_out, first_attending)]
    seconds = [(program, 1) for program in range(num_out)]
    num_gate_up = 2 * config.intermediate_size // GRANULE
    num_head = -(-config.num_speech_rows // GRANULE)
    if num_gate_up > len(seconds) + len(shorts) or num_head > len(shorts):
        return None
    for granule, (program, warp) in zip(range(num_gate_up), seconds + shorts, strict=False):
        warps[program, warp, _GATE_UP] = granule
    for granule, (program, warp) in zip(range(num_head), shorts, strict=False):
        warps[program, warp, _HEAD] = granule
    for program, warp in product(range(num_programs), range(NUM_WARPS)):
        warps[program, warp, _OFFSET] = sizes.slot_offset(warp, is_out=program < num_out)
    fetches = np.zeros((num_programs, 2 * _NUM_FETCHES, 6), np.int32)
    for program in range(num_programs):
        for first, rows in ((0, _fetches(warps[program])), (_NUM_FETCHES, _head_fetches(warps[program]))):
            for index, row in enumerate(rows):
                fetches[program, first + index] = row
    largest = max(sizes.out_bytes, num_shorts * sizes.short_bytes, sizes.attention_bytes)
    return ResidentPlan(warps, fetches, sizes.fixed_bytes + largest)


def _fetches(warps: npt.NDArray[np.int32]) -> Iterator[tuple[int, ...]]:
    """A program's of each layer, in the order in which they are needed: struct Fetch."""
    shares = [(warp, *(int(value) for value in plan)) for warp, plan in enumerate(warps)]
    for warp, kind, first, gate_up, _, offset in shares:
        if kind in (Kind.QKV, Kind.OUT):
            yield warp, kind, first, 0, 1 + (gate_up >= 0), offset
    for has_first in (False, True):  # a slot whose first share has to be read before comes last
        for warp, kind, _, gate_up, _, offset in shares:
            if gate_up >= 0 and (kind != Kind.NONE) is has_first:
                yield warp, Kind.GATE_UP, gate_up, int(has_first), 1 + has_first, offset
    for warp, kind, first, _, _, offset in shares:
        if kind == Kind.DOWN:
            yield warp, kind, first, 0, 1, offset


def _head_fetches(warps: npt.NDArray[np.int32]) -> Iterator[tuple[int, ...]]:
    """A program's after all layers."""
    for warp, (kind, _, gate_up, head, offset) in enumerate(warps.tolist()):
        if head >= 0:
            yield warp, Kind.HEAD, head, 0, (kind != Kind.NONE) + (gate_up >= 0), offset


class _Sizes:
    """Of a program's shared memory, in bytes, as model.cuh and attention.cuh have it."""

    def __init__(self, config: LlmConfig) -> None:
        group, num_inputs = config.num_heads // config.num_kv_heads, config.intermediate_size // NUM_SPLITS
        self.are_possible = (
            config.head_dim == BOX
            and config.num_heads * config.head_dim == config.hidden_size
            and group <= 8
            and config.hidden_size % BOX == 0
            and config.intermediate_size % (BOX * NUM_SPLITS) == 0
        )
        self.short_bytes = 2 * GRANULE * config.hidden_size
        self._long_bytes = 2 * GRANULE * num_inputs
        shared_bytes = 2 * 8 * NUM_WARPS + 4 * config.hidden_size // GRANULE + 16 + _operand_bytes(config.hidden_size)
        self.fixed_bytes = -(-shared_bytes // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT
        self.out_bytes = (
            _OUT_SHORTS * self.short_bytes
            + NUM_SPLITS * self._long_bytes
            + 4 * GRANULE * (NUM_SPLITS + 1)
            + _operand_bytes(config.hidden_size)
            + NUM_SPLITS * _operand_bytes(num_inputs)
        )
        query_words = 8 * (config.head_dim // 2 + 4) + config.head_dim
        highest_words = MAX_KEYS // DECODE_KEYS * 8 * NUM_WARPS
        self.attention_bytes = 4 * (query_words + highest_words + 8 * (MAX_KEYS // 2 + 4) + MAX_KEYS * config.head_dim)

    def slot_offset(self, warp: int, *, is_out: bool) -> int:
        num_shorts = min(warp, _OUT_SHORTS) if is_out else warp
        return self.fixed_bytes + num_shorts * self.short_bytes + (warp - num_shorts) * self._long_bytes


def _operand_bytes(num_inputs: int) -> int:
    """A product's second operand of so many inputs, as four lanes have it."""
    return 4 * 4 * (num_inputs // 8 + 4)
