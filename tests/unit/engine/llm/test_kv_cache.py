"""Attention is the plain causal attention of each sequence alone."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit

from tests.unit.engine.llm.support import small_llm_config
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span

CONFIG = small_llm_config()
QKV_WIDTH = (CONFIG.num_heads + 2 * CONFIG.num_kv_heads) * CONFIG.head_dim
LAYER = 1


def make_cache(num_slots: int = 4, max_positions: int = 32) -> KvCache:
    cache = KvCache(CONFIG, num_slots=num_slots, max_positions=max_positions, device="cpu", dtype=torch.float32)
    cache.data.fill_(torch.nan)  # what is read shows it
    return cache


def reference(qkv: torch.Tensor) -> torch.Tensor:
    """Causal attention over one whole sequence [T, QKV_WIDTH], heads repeated the plain way."""
    heads, kv_heads, dim = CONFIG.num_heads, CONFIG.num_kv_heads, CONFIG.head_dim
    query, key, value = qkv.split([heads * dim, kv_heads * dim, kv_heads * dim], dim=1)
    query = query.view(-1, heads, dim).transpose(0, 1)
    key = key.view(-1, kv_heads, dim).transpose(0, 1).repeat_interleave(heads // kv_heads, dim=0)
    value = value.view(-1, kv_heads, dim).transpose(0, 1).repeat_interleave(heads // kv_heads, dim=0)
    return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1).reshape(len(qkv), -1)


def sequences(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(length, QKV_WIDTH, generator=generator) for length in lengths]


def attend(cache: KvCache, whole: dict[int, torch.Tensor], spans: list[Span]) -> torch.Tensor:
    qkv = torch.cat([whole[span.slot][span.start : span.start + span.length] for span in spans])
    return RaggedAttention(cache, spans).attend(LAYER, qkv)


def test_prefills_and_decodes_in_one_call() -> None:
    cache = make_cache()
    whole = dict(enumerate(sequences(9, 5, 12)))
    expected = {slot: reference(qkv) for slot, qkv in whole.items()}
    first = attend(cache, whole, [Span(2, 0, 6), Span(0, 0, 8)])
    torch.testing.assert_close(first, torch.cat([expected[2][:6], expected[0][:8]]))
    second = attend(cache, whole, [Span(0, 8, 1), Span(1, 0, 5), Span(2, 6, 6)])
    torch.testing.assert_close(second, torch.cat([expected[0][8:], expected[1], expected[2][6:]]))


def test_positions_name_every_row() -> None:
    assert make_cache().positions([Span(3, 4, 3), Span(1, 0, 2), Span(0, 9, 1)]).tolist() == [4, 5, 6, 0, 1, 9]
