"""Keys and values of all sequences in static slots, and attention over them: ragged by views, or one fixed shape.

The cache knows slots and lengths, not sequences. Both attentions store first and read after, so a position sees itself.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit

from voicegate.engine.llm.backend import NoFreeSlot
from voicegate.engine.model.config import LlmConfig


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive new positions of one slot."""

    slot: int
    start: int  # positions that the slot holds already
    length: int


class KvCache:
    """`data` [layers, 2 (key, value), slots, kv_heads, max_positions, head_dim]; keys are stored rotated."""

    def __init__(
        self,
        config: LlmConfig,
        *,
        num_slots: int,
        max_positions: int,
        device: torch.device | str,
        dtype: torch.dtype,
        is_zeroed: bool = False,
    ) -> None:
        """On a CPU memory is only taken where a sequence has been, unless `is_zeroed` (GatheredAttention needs it)."""
        shape = (config.num_layers, 2, num_slots, config.num_kv_heads, max_positions, config.head_dim)
        self.data = (torch.zeros if is_zeroed else torch.empty)(shape, device=device, dtype=dtype)
        self.lengths = [0] * num_slots  # positions stored, per slot; advanced by the runner
        self.max_positions = max_positions
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._places = torch.arange(max_positions, device=device)
        self._free = list(reversed(range(num_slots)))

    @property
    def num_free_slots(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        """Take an empty slot. Raises NoFreeSlot."""
        if not self._free:
            raise NoFreeSlot(f"all {len(self.lengths)} LLM slots are taken")
        slot = self._free.pop()
        self.lengths[slot] = 0
        return slot

    def free(self, slot: int) -> None:
        """Give a slot back; what it holds is never read again."""
        assert slot not in self._free
        self._free.append(slot)

    def positions(self, spans: list[Span]) -> torch.Tensor:
        """The spans' positions in one row, [N] int64."""
        parts = [self._places.narrow(0, span.start, span.length) for span in spans]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class Attention(Protocol):
    """One forward's way into the cache: who the N rows are, and what they see."""

    positions: torch.Tensor  # [N] int64

    def attend(self, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        """Store keys and values, return the attention's output [N, heads * head_dim].

        `qkv` [N, (heads + 2 * kv_heads) * head_dim], queries and keys rotated.
        """


class RaggedAttention:
    """Any mix of prefills and decodes, span after span, through views of the cache: nothing is copied or padded.

    A span's result does not depend on the others. One attention call per span: right for a CPU, not for CUDA graphs.
    """

    def __init__(self, cache: KvCache, spans: list[Span]) -> None:
        self.positions = cache.positions(spans)
        self._num_heads, self._num_kv_heads, self._head_dim = cache.num_heads, cache.num_kv_heads, cache.head_dim
        self._lengths = [span.length for span in spans]
        # Per span and layer: where to store [2, kv_heads, T, D], and what to read, [1, kv_heads, L, D] for 2 * layer
        # (keys) and 2 * layer + 1 (values). Made here for all layers at once: views are most of a small step's work.
        self._stores = []
        self._reads = []
        self._masks = []
        data_by_part = cache.data.flatten(0, 1)
        for span in spans:
            end = span.start + span.length
            stores = cache.data.select(2, span.slot).narrow(3, span.start, span.length)
            self._stores.append(stores.unbind(0))
            self._reads.append(data_by_part.narrow(1, span.slot, 1).narrow(3, 0, end).unbind(0))
            self._masks.append(_causal_mask(span, cache.data.device))

    def attend(self, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        if len(self._lengths) == 1:
            return self._attend_span(0, layer, qkv)
        parts = [self._attend_span(index, layer, part) for index, part in enumerate(torch.split(qkv, self._lengths))]
        return torch.cat(parts)

    def _attend_span(self, index: int, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        num_rows, kv_heads, head_dim = len(qkv), self._num_kv_heads, self._head_dim
        query_width = self._num_heads * head_dim
        key, value = self._reads[index][2 * layer : 2 * layer + 2]
        new_kv = qkv[:, query_width:].view(num_rows, 2, kv_heads, head_dim)
        self._stores[index][layer].copy_(new_kv.permute(1, 2, 0, 3))
        if num_rows == 1:
            # The queries that share a key head become rows of one query: no copy of the keys for each of them.
            query = qkv[:, :query_width].view(1, kv_heads, -1, head_dim)
            return F.scaled_dot_product_attention(query, key, value).reshape(1, query_width)
        query = qkv[:, :query_width].view(1, num_rows, self._num_heads, head_dim).transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=self._masks[index], enable_gqa=True)
        return attended.transpose(1, 2).reshape(num_rows, query_width)


class GatheredAttention:
    """One new position of each of B slots, as one fixed-shape call: what a CUDA graph can hold.

    `slots` and `positions` [B] int64 stay on the device; built within a graph's capture, a replay follows what they
    hold then. Every position must be below `num_positions`, the static length that is gathered and masked. The cache
    must be zeroed: masked values are multiplied by 0, which memory that never was written may turn into NaN.
    """

    def __init__(self, cache: KvCache, slots: torch.Tensor, positions: torch.Tensor, *, num_positions: int) -> None:
        self.positions = positions
        self._slots = slots
        self._data = cache.data[:, :, :, :, :num_positions]
        self._query_width = cache.num_heads * cache.head_dim
        places = torch.arange(num_positions, device=cache.data.device)
        self._mask = (places <= positions[:, None])[:, None, None]  # [B, 1, 1, num_positions]

    def attend(self, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        data = self._data[layer]
        _, _, kv_heads, _, head_dim = data.shape
        num_rows = len(qkv)
        new_kv = qkv[:, self._query_width :].view(num_rows, 2, kv_heads, head_dim)
        data[:, self._slots, :, self.positions] = new_kv
        key, value = data.index_select(1, self._slots).unbind(0)  # twice [B, kv_heads, num_positions, D]
        query = qkv[:, : self._query_width].view(num_rows, kv_heads, -1, head_dim)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=self._mask)
        return attended.reshape(num_rows, self._query_width)


def _causal_mask(span: Span, device: torch.device) -> torch.Tensor | None:
    """[T, start + T] bool, True where a new position may look; None for a single one, which may look anywhere."""
    if span.length == 1:
        return None
    end = span.start + span.length
    return torch.arange(end, device=device) <= torch.arange(span.start, end, device=device)[:, None]
