"""Loading: wrong state dicts are named, half-width weights give the same numbers. The numbers: tests/parity."""

from dataclasses import replace

import pytest
import torch

from tests.unit.engine.llm.support import small_llm_config, small_state_dict
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.linear import Linear, can_pack_half
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.config import HeadBias
from voicegate.engine.model.weights import WeightsError

CONFIG = small_llm_config()
ROWS = torch.tensor([1, 5, 33, 70, 2, 9])


def hidden(model: LlmModel, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    cache = KvCache(CONFIG, num_slots=1, max_positions=8, device="cpu", dtype=dtype)
    return model.forward(model.embed(ROWS), RaggedAttention(cache, [Span(0, 0, len(ROWS))]))


def test_every_problem_of_a_state_dict_is_named() -> None:
    state = small_state_dict()
    del state["llm_decoder.weight"]
    state["llm_decoder.bias"] = torch.zeros(1)
    state["llm.model.model.norm.weight"] = torch.zeros(25)
    with pytest.raises(WeightsError) as caught:
        LlmModel(CONFIG, state)
    message = str(caught.value)
    assert "missing: llm_decoder.weight [" in message
    assert "unknown: llm_decoder.bias [1]" in message
    assert "misshaped: llm.model.model.norm.weight is [25], not [24]" in message


def test_the_tied_text_head_may_be_there_or_not() -> None:
    state = small_state_dict()
    with_head = hidden(LlmModel(CONFIG, state))
    del state["llm.model.lm_head.weight"]
    torch.testing.assert_close(hidden(LlmModel(CONFIG, state)), with_head, rtol=0, atol=0)


def test_a_heads_bias_counts_where_the_model_uses_it() -> None:
    bias = torch.arange(CONFIG.num_speech_rows) / 100
    plain, state = small_state_dict(), {**small_state_dict(), "llm_decoder.bias": bias}
    expected = LlmModel(CONFIG, plain).logits(torch.ones(1, CONFIG.hidden_size))
    for head_bias, added in ((HeadBias.USED, bias), (HeadBias.IGNORED, 0 * bias)):
        model = LlmModel(replace(CONFIG, head_bias=head_bias), state)
        torch.testing.assert_close(model.logits(torch.ones(1, CONFIG.hidden_size)), expected + added)
        with pytest.raises(WeightsError, match=r"missing: llm_decoder\.bias"):
            LlmModel(replace(CONFIG, head_bias=head_bias), plain)
    with pytest.raises(WeightsError, match=r"unknown: llm_decoder\.bias"):
        LlmModel(CONFIG, state)


def test_half_files_run_in_float32_packed_or_not() -> None:
    state = small_state_dict(torch.float16)
    packed, plain = LlmModel(CONFIG, state), LlmModel(CONFIG, state, packs_half_weights=False)
    widened = LlmModel(CONFIG, {name: tensor.float() for name, tensor in state.items()})
    expected = hidden(widened)
    assert expected.dtype == torch.float32
    torch.testing.assert_close(hidden(packed), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(hidden(plain), expected, rtol=0, atol=0)
    torch.testing.assert_close(packed.logits(expected), widened.logits(expected), rtol=0, atol=1e-5)


def test_other_dtypes_than_float32() -> None:
    """A GPU's arithmetic on the CPU: torch's own rms_norm, rotation in float32, logits in float32."""
    expected = hidden(LlmModel(CONFIG, small_state_dict()))
    model = LlmModel(CONFIG, small_state_dict(), dtype=torch.bfloat16)
    half = hidden(model, torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert (half - expected).abs().max() < 0.1
    assert model.logits(half).dtype == torch.float32


@pytest.mark.skipif(not can_pack_half(), reason="this build of torch has no FBGEMM")
def test_packed_products_do_not_depend_on_the_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(50, 24, generator=generator).half(), torch.randn(50, generator=generator).half()
    linear = Linear(weight, bias, device=torch.device("cpu"), dtype=torch.float32)
    x = torch.randn(300, 24, generator=generator)
    expected = linear(x)
    torch.testing.assert_close(expected, x @ weight.float().T + bias.float(), rtol=0, atol=1e-5)
    for count in range(301):
        assert torch.equal(linear(x[:count]), expected[:count]), count
