"""A batch of chunks seen by encoder and estimator: reads what streams remember, keeps what is new.

For torch's operations, which want what they read in one piece; the kernels in cuda/ read the memory in place. Nothing
here asks the device for a number: every call can be captured.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers
from voicegate.engine.families.stepaudio2.flow.encoder import KnownRows
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory, as_bits


class MemoryEncoderContext:
    """Implements EncoderContext. The buffers' tails are those behind the chunk once the encoder has run."""

    def __init__(self, memory: FlowMemory, buffers: ChunkBuffers) -> None:
        self._memory = memory
        self._buffers = buffers
        # A token lies where its first frame does.
        rate = units.FRAMES_PER_TOKEN
        self._new = {True: buffers.new, False: buffers.new[:, ::rate] // rate}
        self._known = {True: buffers.known, False: buffers.known[:, ::rate] // rate}

    def extend(self, new: torch.Tensor, *, layer: int, is_up: bool) -> KnownRows:
        memory = self._memory.frames[layer] if is_up else self._memory.tokens[layer]
        _keep(memory, self._new[is_up], new)
        known = self._known[is_up]
        rate = 1 if is_up else units.FRAMES_PER_TOKEN
        is_known = _is_within(known.shape[1], (self._buffers.num_known + rate - 1) // rate)
        return KnownRows(_gathered(memory, known), is_known, self._buffers.first_frames // rate)

    def with_history(self, rows: torch.Tensor, *, is_up: bool) -> torch.Tensor:
        tails = self._buffers.frame_tails if is_up else self._buffers.token_tails
        window = torch.cat((tails, rows), dim=1)
        num_new = self._buffers.num_tokens * (units.FRAMES_PER_TOKEN if is_up else 1)
        tails.copy_(_rows_from(window, num_new, tails.shape[1]))
        return window


class MemoryFrameContext:
    """Implements FrameContext, for the Euler step that the buffers are at. `finish` keeps the convolutions' tails."""

    def __init__(self, memory: FlowMemory, buffers: ChunkBuffers) -> None:
        self._memory = memory
        self._buffers = buffers
        offset = buffers.step * memory.num_places  # of the step, in a layer's memory
        self._new = buffers.new + offset
        self._context = buffers.context + offset
        is_seen = _is_within(buffers.context.shape[1], buffers.num_context)
        self._mask = is_seen[:, None, None]  # [B, 1, 1, L]
        self._num_frames = buffers.num_tokens * units.FRAMES_PER_TOKEN
        self._tails = buffers.estimator_tails.index_select(1, buffers.step)  # [B, 1, layers, convolutions, C, 2, D]

    def with_history(self, hidden: torch.Tensor, *, layer: int, conv: int) -> torch.Tensor:
        tails = self._tails[:, 0, layer, conv].transpose(0, 1)  # [C, B, 2, D]
        window = torch.cat((tails, hidden), dim=2)
        width = tails.shape[2]
        starts = self._num_frames.repeat(len(window))
        tails.copy_(_rows_from(window.flatten(0, 1), starts, width).view_as(tails))
        return window

    def attend(self, query: torch.Tensor, keys_values: torch.Tensor, *, layer: int) -> torch.Tensor:
        memory = self._memory.estimator[layer].flatten(0, 1)  # [steps * places, 2, C, H, d]
        _keep(memory, self._new, keys_values.permute(1, 2, 3, 0, 4, 5))
        known = _gathered(memory, self._context).to(query.dtype)  # [B, L, 2, C, H, d]
        # The halves count as heads: so keys and values stay where they were gathered to.
        keys, values = known.flatten(3, 4).transpose(1, 3).unbind(2)  # [B, C * H, L, d]
        queries = query.permute(1, 0, 3, 2, 4).flatten(1, 2)  # [B, C * H, n, d]
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=self._mask)
        halves, num_rows, num_frames, heads, channels = query.shape
        attended = attended.view(num_rows, halves, heads, num_frames, channels)
        return attended.permute(1, 0, 3, 2, 4).flatten(3)

    def finish(self) -> None:
        self._buffers.estimator_tails.index_copy_(1, self._buffers.step, self._tails)


def _is_within(length: int, counts: torch.Tensor) -> torch.Tensor:
    """[B, length]: whether a column is one of its row's first."""
    return torch.arange(length, device=counts.device) < counts[:, None]


def _gathered(memory: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """memory [places, ...], places [B, L] -> [B, L, ...]."""
    rows = as_bits(memory).index_select(0, places.flatten()).view(memory.dtype)
    return rows.view(*places.shape, *memory.shape[1:])


def _keep(memory: torch.Tensor, places: torch.Tensor, rows: torch.Tensor) -> None:
    """rows [B, L, ...] at their places; padding in the scratch block."""
    as_bits(memory).index_copy_(0, places.flatten(), as_bits(rows.flatten(0, 1).to(memory.dtype)))


def _rows_from(window: torch.Tensor, starts: torch.Tensor, width: int) -> torch.Tensor:
    """[B, N, D], starts [B] -> [B, width, D]: what lies before a row's first new one of the next chunk."""
    index = starts[:, None] + torch.arange(width, device=window.device)
    return window.gather(1, index[..., None].expand(-1, -1, window.shape[2]))
