"""Keys and values of all sequences in static slots, and attention over them. Knows slots, not sequences."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit

from voicegate.engine.device.one_thread import OneThread
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
    ) -> None:
        """On a CPU memory is only taken where a sequence has been."""
        shape = (config.num_layers, 2, num_slots, config.num_kv_heads, max_positions, config.head_dim)
        self.data = torch.empty(shape, device=device, dtype=dtype)
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._places = torch.arange(max_positions, device=device)

    def positions(self, spans: list[Span]) -> torch.Tensor:
        """The spans' positions, one behind the other: [N] int64."""
        parts = [self._places.narrow(0, span.start, span.length) for span in spans]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class RaggedAttention:
    """One forward's way into the cache: any mix of prefills and decodes, span after span, through views of it.

    It stores first and reads after, so a position sees itself. A span's result does not depend on the others. One
    attention call per span: right for a CPU, not for CUDA graphs.
    """

    def __init__(self, cache: KvCache, spans: list[Span]) -> None:
        self.positions = cache.positions(spans)  # [N] int64
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
        """Store keys and values, return the attention's output [N, heads * head_dim].

        `qkv` [N, (heads + 2 * kv_heads) * head_dim], queries and keys rotated.
        """
        if len(self._lengths) == 1:
            return self._attend_span(0, layer, qkv)
        parts = [self._attend_span(index, layer, part) for index, part in enumerate(torch.split(qkv, self._lengths))]
        return torch.cat(parts)

    def _attend_span(self, index: int, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        num_lines, kv_heads, head_dim = len(qkv), self._num_kv_heads, self._head_dim
        query_width = self._num_heads * head_dim
        key, value = self._reads[index][2 * layer : 2 * layer + 2]
        new_kv = qkv[:, query_width:].view(num_lines, 2, kv_heads, head_dim)
        self._stores[index][layer].copy_(new_kv.permute(1, 2, 0, 3))
        if num_lines == 1:
            # The queries that share a key head become rows of one query: no copy of the keys for each of them.
            query = qkv[:, :query_width].view(1, kv_heads, -1, head_dim)
            with OneThread():  # several would part the keys, and sum anew: a token would depend on their number
                return F.scaled_dot_product_attention(query, key, value).reshape(1, query_width)
        query = qkv[:, :query_width].view(1, num_lines, self._num_heads, head_dim).transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=self._masks[index], enable_gqa=True)
        return attended.transpose(1, 2).reshape(num_lines, query_width)


def _causal_mask(span: Span, device: torch.device) -> torch.Tensor | None:
    """[T, start + T] bool, True where a new position may look; None for a single one, which may look anywhere."""
    if span.length == 1:
        return None
    end = span.start + span.length
    return torch.arange(end, device=device) <= torch.arange(span.start, end, device=device)[:, None]
