"""One chunk of each of several streams, seen by encoder and estimator: reads what is known, keeps what is new.

The only place that touches the memory's tensors, so a kernel that reads them in place replaces one method.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.token2wav.stepaudio2.flow import encoder, estimator
from voicegate.engine.token2wav.stepaudio2.flow.encoder import KnownRows
from voicegate.engine.token2wav.stepaudio2.flow.memory import CFG_HALVES, FlowMemory, Places, as_bits


@dataclass(frozen=True, slots=True)
class Tails:
    """What a stream carries of the convolutions from chunk to chunk. Never written to: every chunk leaves others."""

    tokens: torch.Tensor  # [2, D] of the encoder
    frames: torch.Tensor  # [4, D] of its up-convolution
    estimator: torch.Tensor  # [steps, layers, convolutions, C, 2, D]

    @staticmethod
    def before_first(config: StepAudio2FlowConfig, *, device: torch.device, dtype: torch.dtype) -> "Tails":
        dit = config.estimator
        shape = (config.num_euler_steps, dit.depth, estimator.NUM_CONVS, CFG_HALVES, estimator.CONV_HISTORY, dit.dim)
        return Tails(
            tokens=torch.zeros(encoder.CONV_HISTORY, config.encoder.dim, device=device, dtype=dtype),
            frames=torch.zeros(encoder.UP_HISTORY, config.encoder.dim, device=device, dtype=dtype),
            estimator=torch.zeros(shape, device=device, dtype=dtype),
        )


@dataclass(frozen=True, slots=True)
class PlaceTable:
    """Rows of places, right-padded with the scratch block's."""

    places: torch.Tensor  # [B, L] int64
    is_known: torch.Tensor  # [B, L]

    @staticmethod
    def of(rows: Sequence[Places], *, scratch: int, length: int, device: torch.device) -> "PlaceTable":
        places = np.full((len(rows), length), scratch, dtype=np.int64)
        lengths = np.array([len(row) for row in rows])
        for row, known in zip(places, rows, strict=True):
            row[: len(known)] = known
        is_known = np.arange(length) < lengths[:, None]
        return PlaceTable(torch.from_numpy(places).to(device), torch.from_numpy(is_known).to(device))

    def gather(self, memory: torch.Tensor) -> torch.Tensor:
        """[places, ...] -> [B, L, ...]."""
        rows = as_bits(memory).index_select(0, self.places.flatten()).view(memory.dtype)
        return rows.view(*self.places.shape, *memory.shape[1:])

    def keep(self, memory: torch.Tensor, rows: torch.Tensor) -> None:
        """rows [B, L, ...] at their places; padding to the scratch block."""
        as_bits(memory).index_copy_(0, self.places.flatten(), as_bits(rows.flatten(0, 1).to(memory.dtype)))


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """Where a batch's frames are, and how many of its padded rows' tokens are new."""

    num_tokens: torch.Tensor  # [B] int64
    first_frames: torch.Tensor  # [B] int64: the position of each row's first new frame
    known_frames: PlaceTable  # all of the stream, in order, the new ones at the end
    new_frames: PlaceTable
    context: PlaceTable  # what the estimator sees, the new ones among it

    def of_tokens(self) -> "ChunkPlaces":
        """At the tokens' rate: a token lies where its first frame does."""

        def halved(table: PlaceTable) -> PlaceTable:
            rate = units.FRAMES_PER_TOKEN
            return PlaceTable(table.places[:, ::rate] // rate, table.is_known[:, ::rate])

        return replace(
            self,
            first_frames=self.first_frames // units.FRAMES_PER_TOKEN,
            known_frames=halved(self.known_frames),
            new_frames=halved(self.new_frames),
        )


class MemoryEncoderContext:
    """Implements EncoderContext. `tails` are those behind the chunk once the encoder has run."""

    def __init__(self, memory: FlowMemory, places: ChunkPlaces, tails: Sequence[Tails]) -> None:
        self._memory = memory
        self._by_rate = {False: places.of_tokens(), True: places}
        self._num_tokens = places.num_tokens
        self.tails = {
            False: torch.stack([each.tokens for each in tails]),
            True: torch.stack([each.frames for each in tails]),
        }

    def extend(self, new: torch.Tensor, *, layer: int, is_up: bool) -> KnownRows:
        places = self._by_rate[is_up]
        memory = self._memory.frames[layer] if is_up else self._memory.tokens[layer]
        places.new_frames.keep(memory, new)
        known = places.known_frames.gather(memory).to(new.dtype)
        return KnownRows(known, places.known_frames.is_known, places.first_frames)

    def with_history(self, rows: torch.Tensor, *, is_up: bool) -> torch.Tensor:
        window = torch.cat((self.tails[is_up], rows), dim=1)
        num_new = self._num_tokens * (units.FRAMES_PER_TOKEN if is_up else 1)
        self.tails[is_up] = _rows_from(window, num_new, self.tails[is_up].shape[1])
        return window


class MemoryFrameContext:
    """Implements FrameContext, for one Euler step after the other."""

    def __init__(self, memory: FlowMemory, places: ChunkPlaces, tails: Sequence[Tails]) -> None:
        self._memory = memory
        self._places = places
        self._num_frames = places.num_tokens * units.FRAMES_PER_TOKEN
        self._mask = places.context.is_known[:, None, None]  # [B, 1, 1, L]
        # [steps, layers, convolutions, C, B, 2, D]
        self.tails = torch.stack([each.estimator for each in tails], dim=4)
        self.step = 0

    def with_history(self, hidden: torch.Tensor, *, layer: int, conv: int) -> torch.Tensor:
        tails = self.tails[self.step, layer, conv]
        window = torch.cat((tails, hidden), dim=2)
        width = tails.shape[2]
        tails.copy_(_rows_from(window.flatten(0, 1), self._num_frames.repeat(len(window)), width).view_as(tails))
        return window

    def attend(self, query: torch.Tensor, keys_values: torch.Tensor, *, layer: int) -> torch.Tensor:
        memory = self._memory.estimator[layer, self.step]  # [places, C, 2, H, d]
        self._places.new_frames.keep(memory, keys_values.permute(1, 2, 0, 3, 4, 5))
        known = self._places.context.gather(memory).to(query.dtype)  # [B, L, C, 2, H, d]
        keys, values = known.permute(3, 2, 0, 4, 1, 5).unbind(0)  # [C, B, H, L, d]
        mask = self._mask.expand(len(query), -1, -1, -1, -1).flatten(0, 1)
        attended = F.scaled_dot_product_attention(
            query.transpose(2, 3).flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1), attn_mask=mask
        )
        return attended.view(*query.shape[:2], *attended.shape[1:]).transpose(2, 3).flatten(3)


def _rows_from(window: torch.Tensor, starts: torch.Tensor, width: int) -> torch.Tensor:
    """[B, N, D], starts [B] -> [B, width, D]: what lies before a row's first new one of the next chunk."""
    index = starts[:, None] + torch.arange(width, device=window.device)
    return window.gather(1, index[..., None].expand(-1, -1, window.shape[2]))
