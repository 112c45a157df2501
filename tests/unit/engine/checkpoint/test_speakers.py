"""Entries of spk2info.pt that hold something else than a voice: each is left out, and says what it lacks."""

from typing import Any

import pytest
import torch

from tests.support.upstream_source import make_source
from voicegate.engine.checkpoint.checkpoint import Checkpoint
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.checkpoint.convert import read_checkpoint
from voicegate.engine.checkpoint.speakers import SpeakerVoice, speaker_voices


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(make_source(tmp_path_factory.mktemp("upstream") / "Fun-Small"), ConvertOptions())


def entry(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    whole = {
        "prompt_text": torch.tensor([[65, 66, 67]]),
        "flow_prompt_speech_token": torch.arange(4)[None],
        "prompt_speech_feat": torch.randn(1, 11, 80),
        "flow_embedding": torch.randn(1, 192),
    }
    return whole | changes


def found(checkpoint: Checkpoint, loaded: dict[Any, Any]) -> list[SpeakerVoice | str]:
    return list(speaker_voices(loaded, checkpoint.tokenizer, checkpoint.model))


@pytest.mark.parametrize(
    ("key", "tensor", "reason"),
    [
        ("prompt_speech_feat", torch.randn(1, 80, 11), "has shape [1, 80, 11], not [1, frames, 80]"),
        ("prompt_speech_feat", torch.randn(1, 80, 100), "has shape [1, 80, 100], not [1, frames, 80]"),
        ("prompt_speech_feat", torch.randn(1, 101, 100), "has shape [1, 101, 100], not [1, frames, 80]"),
        ("prompt_speech_feat", torch.randn(2, 11, 80), "has shape [2, 11, 80], not [1, frames, 80]"),
        ("prompt_speech_feat", torch.randn(80), "has shape [80], not [1, frames, 80]"),
        ("prompt_speech_feat", torch.full((1, 11, 80), -torch.inf), "has values that are not finite"),
        ("prompt_speech_feat", torch.ones(1, 11, 80, dtype=torch.int64), "is torch.int64, not of floating point"),
        ("flow_embedding", torch.full((1, 192), torch.nan), "has values that are not finite"),
        ("prompt_text", torch.tensor([[1.5]]), "is torch.float32, not of whole numbers"),
        ("prompt_text", torch.tensor([[5, 10**6]]), "is not all in 0..580"),
        ("prompt_text", torch.tensor([[-1]]), "is not all in 0..580"),
        ("prompt_text", torch.tensor([[5, 6], [7, 8]]), "has shape [2, 2], which is not one row"),
        ("flow_prompt_speech_token", torch.rand(1, 4), "is torch.float32, not of whole numbers"),
        ("flow_prompt_speech_token", torch.tensor([[-1, 2]]), "is not all in 0..6560"),
    ],
)
def test_something_else_in_it(checkpoint: Checkpoint, key: str, tensor: torch.Tensor, reason: str) -> None:
    odd, good = found(checkpoint, {"odd": entry(**{key: tensor}), "good": entry()})
    assert odd == f"spk2info.pt: no voice from 'odd': its {key} {reason}"
    assert isinstance(good, SpeakerVoice)


@pytest.mark.parametrize("name", ["-x", ".x", "n" * 150, "", "é" * 97])
def test_a_name_that_no_voice_can_have(checkpoint: Checkpoint, name: str) -> None:
    (told,) = found(checkpoint, {name: entry()})
    assert isinstance(told, str)
    assert "cannot be a voice's name" in told


def test_two_of_one_name(checkpoint: Checkpoint) -> None:
    first, second = found(checkpoint, {1: entry(), "1": entry()})
    assert isinstance(first, SpeakerVoice)
    assert second == "spk2info.pt: no voice from '1': another entry has that name"


@pytest.mark.parametrize("text_ids", [torch.tensor([[65, 66]]), torch.tensor([65, 66]), torch.tensor(65)])
def test_upstreams_batch_of_one_may_be_there_or_not(checkpoint: Checkpoint, text_ids: torch.Tensor) -> None:
    (voice,) = found(checkpoint, {"anna": entry(prompt_text=text_ids, prompt_speech_feat=torch.randn(11, 80))})
    assert isinstance(voice, SpeakerVoice)
    assert [each.shape for each in voice.entries] == [(4,), (8, 80), (192,)]
