"""The plain way's decoders on the tiny model: what they compute is the engine's; what they draw is upstream's."""

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from voicegate.bench.plain.llm import TransformersLlm, draw, nucleus
from voicegate.bench.plain.system import PlainSpeaker
from voicegate.engine.llm.backend import LlmPrompt
from voicegate.engine.llm.feed import Rows, speech_rows
from voicegate.engine.llm.sequence import Unistream
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import ModelConfig, SamplingConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict

CPU = torch.device("cpu")
SAMPLING = SamplingConfig()


@pytest.fixture(scope="module")
def model() -> ModelConfig:
    return load_model_config(TINY_MODEL_DIR)


@pytest.fixture(scope="module")
def state_dict() -> dict[str, torch.Tensor]:
    return load_state_dict(TINY_MODEL_DIR / "llm.safetensors")


@pytest.fixture(scope="module")
def speaker() -> PlainSpeaker:
    return PlainSpeaker(TINY_MODEL_DIR, device="cpu", dtype=torch.float32, max_clause_tokens=100)


@torch.inference_mode()
def engine_logits(model: ModelConfig, state_dict: dict[str, torch.Tensor], feeds: list[Rows]) -> torch.Tensor:
    """[len(feeds), num_speech_rows] of the network that the engine's runners are."""
    network = LlmModel(model.llm, state_dict, packs_half_weights=False)
    cache = KvCache(model.llm, num_slots=1, max_positions=200, device="cpu", dtype=torch.float32)
    rows, num_fed = [], 0
    for fed in feeds:
        attention = RaggedAttention(cache, [Span(0, num_fed, len(fed))])
        rows.append(network.logits(network.forward(network.embed(torch.from_numpy(fed)), attention)[-1:])[0])
        num_fed += len(fed)
    return torch.stack(rows)


def test_transformers_compute_what_the_engine_computes(model: ModelConfig, state_dict: dict[str, torch.Tensor]) -> None:
    ids = torch.Generator().manual_seed(0)
    text = (model.llm.end_of_prompt_id, *torch.randint(300, (20,), generator=ids).tolist())
    speech = torch.randint(model.llm.speech_token_size, (52,), generator=ids).tolist()
    sequence = Unistream(model.llm, LlmPrompt(text[:9], tuple(speech[:40])), text[9:])
    assert sequence.feed is not None
    feeds = [sequence.feed.rows, *(speech_rows(model.llm, (token,)) for token in speech[40:])]
    llm = TransformersLlm(model, state_dict, device=CPU, dtype=torch.float32)
    cache, rows = None, []
    for fed in feeds:
        logits, cache = llm.logits(fed, cache)
        rows.append(logits)
    # Logits are about 5 in size.
    torch.testing.assert_close(torch.stack(rows), engine_logits(model, state_dict, feeds), rtol=0, atol=2e-4)


def test_rounded_weights_leave_the_rotary_frequencies_alone(
    model: ModelConfig, state_dict: dict[str, torch.Tensor]
) -> None:
    llm = TransformersLlm(model, state_dict, device=CPU, dtype=torch.bfloat16)
    assert llm._body.rotary_emb.inv_freq.dtype == torch.float32
    assert {parameter.dtype for parameter in llm._body.parameters()} == {torch.bfloat16}


def test_the_nucleus_is_the_engines() -> None:
    scores = 3 * torch.randn(8, 6_761, generator=torch.Generator().manual_seed(1))
    scores[0, 7] = 40.0  # alone in its nucleus
    scores[1] = 0.0  # top_k ends it, equal ones in ascending order
    model = load_model_config(TINY_MODEL_DIR)
    all_ids, all_weights = RepetitionAwareSampler(SAMPLING, model.llm).nucleus(scores)
    for row, ids, weights in zip(scores, all_ids, all_weights, strict=True):
        found_ids, found_weights = nucleus(row, SAMPLING)
        num = int((weights > 0).sum())
        assert found_ids.tolist() == ids[:num].tolist()
        torch.testing.assert_close(found_weights, weights[:num])


def test_a_repeated_token_is_drawn_again_from_all_others() -> None:
    scores = torch.full((6_761,), -10.0)
    scores[7] = 10.0
    generator = torch.Generator().manual_seed(2)
    assert draw(scores.clone(), [], SAMPLING, generator) == 7
    assert draw(scores.clone(), [7, *range(100, 110)], SAMPLING, generator) == 7  # beyond the window
    assert draw(scores.clone(), [7, *range(100, 109)], SAMPLING, generator) != 7


def test_a_pass_that_was_left_in_the_middle_stops_nobody(speaker: PlainSpeaker) -> None:
    llm = speaker.load_llm()
    begun = speaker.speak(llm, "Good morning, it is seven o'clock.", "woman", seed=3, only_first_audio=True)
    whole = speaker.speak(llm, "Good morning, it is seven o'clock.", "woman", seed=3)
    assert begun.first_audio_s is not None
    assert whole.first_audio_s is not None
    assert 0 < begun.num_samples < whole.num_samples
    assert 1.0 < whole.audio_s < 8.0
    assert all(seconds > 0 for seconds in whole.stages_s.values())


def test_what_a_report_says_of_them(speaker: PlainSpeaker) -> None:
    described = speaker.load_llm().describe()
    assert described["attention"] == "sdpa"
    assert described["transformers"][0].isdigit()
