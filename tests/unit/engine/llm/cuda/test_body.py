"""The kernels' arithmetic against LlmModel, and what they may not read."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.unit.engine.llm.cuda.support import TILES
from tests.unit.engine.llm.support import small_llm_config, small_state_dict
from voicegate.engine.llm.cuda import packing
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import Tile, TileTable, default_tiles, tile_for
from voicegate.engine.llm.cuda.packing import WorkLayout
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.config import SamplingConfig

CONFIG = small_llm_config()
FED = [3, CONFIG.vocab_size + 5, 7, 9, CONFIG.vocab_size + 9]
SLOT = 2


def fed_body(tiles: TileTable) -> DecoderBody:
    """A body that was fed FED at the beginning of a slot, in a cache full of NaN; sample 0 at line 4, 1 at line 1."""
    weights = DecoderWeights(CONFIG, small_state_dict(), device=torch.device("cpu"), dtype=torch.float32)
    body = DecoderBody(
        CONFIG, SamplingConfig(), weights, num_slots=3, max_positions=40, max_lines=8, max_samples=4, tiles=tiles
    )
    body.cache.fill_(torch.nan)
    body.last_token[SLOT] = 9
    words = np.zeros(body.layout.num_words, np.int32)
    lines = body.layout.lines(words, len(FED))
    lines[:, 0] = FED
    lines[-1, 0] = packing.USE_LAST_TOKEN
    lines[:, 1] = SLOT
    lines[:, 2] = np.arange(len(FED))
    body.layout.samples(words, 2)[:, 0] = [4, 1]
    body.work.copy_(torch.from_numpy(words))
    body.run(len(FED))
    body.score(2)
    return body


@pytest.mark.parametrize("num_splits", [1, 2])
def test_states_keys_and_scores_equal_the_models(num_splits: int) -> None:
    body = fed_body(replace(TILES, down=((1, Tile(16, 32, 32, 1, num_splits=num_splits)),)))
    model = LlmModel(CONFIG, small_state_dict())
    cache = KvCache(CONFIG, num_slots=1, max_positions=40, device="cpu", dtype=torch.float32)
    attention = RaggedAttention(cache, [Span(0, 0, len(FED))])
    hidden = model.forward(model.embed(torch.tensor(FED)), attention)
    scores = body.scores[:2, : CONFIG.num_speech_rows]
    torch.testing.assert_close(scores, model.logits(hidden[[4, 1]]), atol=3e-5, rtol=0)
    stored = body.cache[:, :, SLOT, :, : len(FED)]
    torch.testing.assert_close(stored, cache.data[:, :, 0, :, : len(FED)], atol=1e-5, rtol=0)
    assert body.cache[:, :, SLOT, :, len(FED) :].isnan().all()
    assert body.cache[:, :, :SLOT].isnan().all()


def fed_in_parts(ends: Sequence[int]) -> torch.Tensor:
    """States [lines, width] of 11 fed lines of a slot, in passes that end there; the last has a decode before them."""
    weights = DecoderWeights(CONFIG, small_state_dict(), device=torch.device("cpu"), dtype=torch.float32)
    body = DecoderBody(
        CONFIG, SamplingConfig(), weights, num_slots=3, max_positions=40, max_lines=16, max_samples=1, tiles=TILES
    )
    body.cache.fill_(torch.nan)
    states = []
    for begin, end in pairwise((0, *ends)):
        is_last = end == ends[-1]
        records = [[packing.USE_LAST_TOKEN, 0, 0, 1]] if is_last else []
        records += [[place, SLOT, place, 1] for place in range(begin, end)]
        words = np.zeros(body.layout.num_words, np.int32)
        body.layout.lines(words, len(records))[:] = records
        body.work.copy_(torch.from_numpy(words))
        body.run(len(records))
        states.append(body.residual[int(is_last) : len(records)].clone())
    return torch.cat(states)


@pytest.fixture
def rows_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's products without BLAS, which on some processors (AMD's) rounds a row by where it stands."""

    def multiply(a: npt.NDArray[Any], b: npt.NDArray[Any], dtype: Any = None) -> npt.NDArray[Any]:
        return np.einsum("mk,kn->mn", a, b, dtype=dtype, optimize=False)

    monkeypatch.setattr(np, "matmul", multiply)


@pytest.mark.usefixtures("rows_alike")
@pytest.mark.parametrize("ends", [(1, 2, 11), pytest.param((7, 8, 11), marks=pytest.mark.soak)])
def test_a_line_does_not_depend_on_how_its_feed_was_cut(ends: Sequence[int]) -> None:
    """Tiles are of eight lines here: begun in their middle, of one line, cut in two."""
    whole = fed_in_parts((11,))
    assert whole.isfinite().all()
    assert torch.equal(fed_in_parts(ends), whole)


def test_records_lie_where_the_kernels_look() -> None:
    layout = WorkLayout(max_lines=4, max_samples=3)
    words = np.zeros(layout.num_words, np.int32)
    layout.lines(words, 2)[1] = [1, 2, 3, 4]
    layout.samples(words, 2)[1, 0] = 7
    begin, end = layout.span(2, 2)
    assert words[begin : begin + 1].tolist() == [7]
    assert words[end - 4 : end].tolist() == [1, 2, 3, 4]
    assert not words[:begin].any()
    assert not words[end:].any()


def test_tiles_by_number_of_lines() -> None:
    few, many = Tile(16, 32, 32, 1), Tile(64, 64, 32, 1)
    choice = ((16, few), (64, many))
    assert [tile_for(choice, num_lines) for num_lines in (1, 16, 17, 64, 65)] == [few, few, many, many, many]


def test_a_weight_is_cut_alike_for_any_number_of_lines() -> None:
    with pytest.raises(ValueError, match="out: all tiles"):
        TileTable(out=((1, Tile(16, 32, 32, 1)), (2, Tile(16, 32, 32, 1, num_splits=2))))


def test_a_smaller_chip_gets_fewer_stages() -> None:
    for _, tile in default_tiles(is_float32=False, shared_memory_bytes=99 * 1024).qkv:
        assert 2 * tile.num_stages * (tile.block_m + tile.block_n) * tile.block_k <= 99 * 1024
    assert default_tiles(is_float32=False, shared_memory_bytes=227 * 1024) == TileTable()


def test_a_smaller_chip_has_fewer_keys_on_their_way() -> None:
    stages = [
        default_tiles(is_float32=False, shared_memory_bytes=kilobytes * 1024).attention.overlapped_stages
        for kilobytes in (227, 99, 64, 16)
    ]
    assert stages == [4, 3, 2, 1]
