"""The embedded model through the runner: its own reference tokens are likely, and batching changes nothing."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import tokenizers
import torch

from tests.support.golden import GOLDEN_DIR, TINY_MODEL_DIR
from voicegate.engine.llm.backend import LlmPrompt
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_metadata, load_state_dict


@cache
def config() -> ModelConfig:
    return load_model_config(TINY_MODEL_DIR)


@cache
def state_dict() -> dict[str, torch.Tensor]:
    return load_state_dict(TINY_MODEL_DIR / "llm.safetensors")


@cache
def prompt(voice: str) -> LlmPrompt:
    path = TINY_MODEL_DIR / "voices" / f"{voice}.safetensors"
    tokenizer = tokenizers.Tokenizer.from_file(str(TINY_MODEL_DIR / "tokenizer.json"))
    text_ids = tokenizer.encode(load_metadata(path)["prompt_text"], add_special_tokens=False).ids
    return LlmPrompt(tuple(text_ids), tuple(load_state_dict(path)["speech_tokens"].tolist()))


@cache
def reference(voice: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Text ids of one sentence, and the speech tokens that upstream's classes drew for it."""
    with np.load(GOLDEN_DIR / "tiny_reference.npz") as archive:
        return tuple(archive[f"{voice}.text_ids"].tolist()), tuple(archive[f"{voice}.speech_tokens"].tolist())


def teacher_forced(model: LlmModel, voice: str) -> tuple[torch.Tensor, Sequence[int]]:
    """Scores [T + 1, num_speech_rows] at every place of the reference tokens, and those tokens."""
    text, speech = reference(voice)
    llm, first = config().llm, model.first_speech_row
    head = [first + llm.sos_id, *prompt(voice).text_ids, *text, first + llm.task_id]
    rows = head + [first + token for token in (*prompt(voice).speech_ids, *speech)]
    cache_ = KvCache(llm, num_slots=1, max_positions=len(rows), device="cpu", dtype=torch.float32)
    hidden = model.forward(model.embed(torch.tensor(rows)), RaggedAttention(cache_, [Span(0, 0, len(rows))]))
    return model.logits(hidden[-len(speech) - 1 :]).log_softmax(-1), speech


@pytest.mark.parametrize("voice", ["woman", "man"])
def test_upstreams_tokens_are_likely(voice: str) -> None:
    """Held-out loss of the model was 1.5 a token; a wrong layout, rotation or table gives about 9."""
    scores, speech = teacher_forced(LlmModel(config().llm, state_dict()), voice)
    picked = scores[:-1].gather(1, torch.tensor(speech)[:, None])
    assert -picked.mean() < 2.0
    assert scores[-1].argmax() == config().llm.eos_id


def test_packed_weights_give_the_same_scores() -> None:
    packed, _ = teacher_forced(LlmModel(config().llm, state_dict()), "woman")
    plain, _ = teacher_forced(LlmModel(config().llm, state_dict(), packs_half_weights=False), "woman")
    assert (packed.exp() - plain.exp()).abs().max() < 1e-4
