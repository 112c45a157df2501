"""decode.c computes what LlmModel does, whatever rows share a step, and leaves the cache as LlmModel would."""

from dataclasses import replace

import pytest
import torch
from structlog.testing import capture_logs

from tests.unit.engine.llm.cpu.support import VECTORS, Both, config_of, random_state
from voicegate.engine.llm.cpu import decoder
from voicegate.engine.llm.cpu.decoder import CpuDecoder, decoder_of, fits, vectors_of_processor
from voicegate.engine.llm.cpu.library import NoLibrary
from voicegate.engine.llm.torch.kv_cache import KvCache
from voicegate.engine.llm.torch.model import HEAD
from voicegate.engine.model.config import HeadBias, LlmConfig

CONFIG = config_of(4, 2)


def random_rows(num_rows: int, config: LlmConfig = CONFIG, *, seed: int = 5) -> torch.Tensor:
    return torch.randn(num_rows, config.hidden_size, generator=torch.Generator().manual_seed(seed))


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("with_biases", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(5, 1, 64), (4, 2, 32), (3, 3, 16), (1, 1, 80), (8, 1, 16)]
)
def test_it_is_the_model(vectors: str, with_biases: bool, heads: int, kv_heads: int, head_dim: int) -> None:
    head_bias = HeadBias.USED if with_biases else HeadBias.ABSENT
    config = config_of(heads, kv_heads, head_dim=head_dim, head_bias=head_bias)
    assert config.num_speech_rows % 4 != 0, "the head's last rows are a case of their own"
    both = Both(config, random_state(config, with_biases=with_biases), vectors)
    slots = [7, 0, 3, 8]  # not in order
    starts = [1, 40, 0, 13]
    for slot, start in zip(slots, starts, strict=True):
        if start:
            both.prefill(slot, random_rows(start, config, seed=slot))
    for step in range(20):
        rows = random_rows(len(slots), config, seed=100 + step)
        positions = [start + step for start in starts]
        expected = both.by_torch(rows, slots, positions)
        found = both.decoder.forward(rows, slots, positions)
        assert_near(found, expected)
        assert_near(both.decoder.logits(found), both.model.logits(expected))
    torch.testing.assert_close(both.caches[1].data, both.caches[0].data, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("vectors", VECTORS)
def test_a_row_is_the_same_alone_and_beside_others(vectors: str) -> None:
    both = Both(CONFIG, random_state(CONFIG), vectors)
    starts = [5, 6, 7, 8, 17, 31, 32, 33, 60]
    for slot, start in enumerate(starts):
        both.prefill(slot, random_rows(start, seed=slot))
    rows = random_rows(9)
    alone = [both.decoder.forward(rows[slot : slot + 1], [slot], [starts[slot]]) for slot in range(9)]
    scores = [both.decoder.logits(each) for each in alone]
    for num_rows in range(1, 10):
        for order in (list(range(num_rows)), list(range(9 - num_rows, 9))[::-1]):
            together = both.decoder.forward(rows[order], order, [starts[slot] for slot in order])
            assert torch.equal(together, torch.cat([alone[slot] for slot in order]))
            assert torch.equal(both.decoder.logits(together), torch.cat([scores[slot] for slot in order]))


@pytest.mark.parametrize("vectors", VECTORS)
def test_the_last_position_and_no_further(vectors: str) -> None:
    both = Both(CONFIG, random_state(CONFIG), vectors, num_slots=2)
    last = both.caches[1].data.shape[4] - 1
    both.prefill(1, random_rows(last))
    row = random_rows(1, seed=1)
    assert_near(both.decoder.forward(row, [1], [last]), both.by_torch(row, [1], [last]))
    before = both.caches[1].data.clone()
    for slots, positions in (([1], [last + 1]), ([2], [0]), ([-1], [0]), ([0], [-1]), ([0, 1], [0]), ([], [])):
        with pytest.raises(ValueError, match=r"slots|positions"):
            both.decoder.forward(random_rows(max(len(slots), 1)), slots, positions)
    with pytest.raises(ValueError, match="3 embeddings"):
        both.decoder.forward(random_rows(3), [0, 1, 0], [0, 0, 0])
    torch.testing.assert_close(both.caches[1].data, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("scale", [1e-3, 30.0, 3000.0])
def test_small_and_great_numbers(vectors: str, scale: float) -> None:
    """Gates beyond what an exponential can hold, and positions that weigh nothing."""
    state = random_state(CONFIG)
    for name in state:
        if "q_proj" in name or "gate_proj" in name:
            state[name] = (state[name].float() * scale).half()
    both = Both(CONFIG, state, vectors)
    both.prefill(0, random_rows(30))
    row = random_rows(1, seed=2)
    found, expected = both.decoder.forward(row, [0], [30]), both.by_torch(row, [0], [30])
    assert (found - expected).abs().max() < 1e-3 * expected.abs().max()


def test_it_is_for_small_models_that_are_stored_in_half_width(monkeypatch: pytest.MonkeyPatch) -> None:
    state = random_state(CONFIG)
    assert fits(CONFIG, state)
    assert not fits(CONFIG, {**state, HEAD: state[HEAD].float()})
    assert not fits(CONFIG, {name: tensor.bfloat16() for name, tensor in state.items()})
    for width in ("hidden_size", "intermediate_size", "head_dim"):
        assert not fits(replace(CONFIG, **{width: getattr(CONFIG, width) + 8}), state)
    monkeypatch.setattr(decoder, "ONE_THREADS_PRODUCTS", 1000)
    assert not fits(CONFIG, state)


def cache_of(dtype: torch.dtype = torch.float32) -> KvCache:
    return KvCache(CONFIG, num_slots=2, max_positions=20, device="cpu", dtype=dtype)


@pytest.mark.parametrize(
    ("capability", "vectors"),
    [("AVX512", "avx512"), ("AVX512_AMX", "avx512"), ("AVX2", "avx2"), ("DEFAULT", None), ("SVE256", None)],
)
def test_torch_says_which_vectors_there_are(
    monkeypatch: pytest.MonkeyPatch, capability: str, vectors: str | None
) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    assert vectors_of_processor() == vectors
    if vectors is None:
        with capture_logs() as logs:
            assert decoder_of(CONFIG, random_state(CONFIG), cache_of()) is None
        assert logs == [], "there is nothing that a user could do"


@pytest.mark.skipif(not VECTORS, reason="decode.c is not written for this processor")
def test_torch_computes_where_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(decoder_of(CONFIG, random_state(CONFIG), cache_of()), CpuDecoder)
    assert decoder_of(CONFIG, random_state(CONFIG), cache_of(torch.bfloat16)) is None

    def fail() -> None:
        raise NoLibrary("no C compiler")

    monkeypatch.setattr(decoder, "load_library", fail)
    with capture_logs() as logs:
        assert decoder_of(CONFIG, random_state(CONFIG), cache_of()) is None
    assert logs == [{"event": "llm_decodes_without_kernel", "log_level": "info", "reason": "no C compiler"}]
