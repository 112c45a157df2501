"""Voice files: what is in one, and a clear error for each way in which one can be broken."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import WeightsError, load_metadata
from voicegate.engine.voices.pace import VoicePace
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice, VoiceError, load_voice, save_pace, save_voice

TEXTS = {"prompt_text": "Be kind.<|endofprompt|>Hello.", "transcript": "Hello.", "description": "test"}


def write(path: Path, *, texts: dict[str, str] = TEXTS, **changes: torch.Tensor) -> Path:
    tensors = {"speech_tokens": torch.arange(12), "mel": torch.zeros(24, 80), "embedding": torch.ones(192)}
    save_file(tensors | changes, path, metadata=texts)
    return path


def load(path: Path) -> Voice:
    return load_voice(path, vocab_size=6561, speaker_dim=192)


def test_the_tiny_model_has_its_two_voices_which_answer_to_their_old_names_too() -> None:
    voices = load_voices(TINY_MODEL_DIR, load_model_config(TINY_MODEL_DIR))
    assert {name: voice.num_tokens for name, voice in voices.items()} == {"woman": 57, "slt": 57, "man": 68, "rms": 68}
    assert voices["woman"].transcript == "Hello there, it is very nice to meet you."
    for name, old_name in (("woman", "slt"), ("man", "rms")):
        voice, old = voices[name], voices[old_name]
        assert old.description == f"{voice.description}; the old name of {name}"
        assert (old.prompt_text, old.pace) == (voice.prompt_text, voice.pace)
        for tensor, other in zip(
            (voice.speech_tokens, voice.mel, voice.embedding), (old.speech_tokens, old.mel, old.embedding), strict=True
        ):
            assert torch.equal(tensor, other)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    voice = load(write(tmp_path / "anna.safetensors"))
    assert (voice.name, voice.prompt_text, voice.num_tokens) == ("anna", TEXTS["prompt_text"], 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mel": torch.zeros(23, 80)}, r"mel has shape \(23, 80\), not \(24, 80\)"),
        ({"embedding": torch.ones(10)}, r"embedding has shape"),
        ({"speech_tokens": torch.full((12,), 6561)}, r"must lie in 0\.\.6560"),
        ({"speech_tokens": torch.zeros(12, 1, dtype=torch.int64)}, r"not \[P\]"),
        ({"mel": torch.full((24, 80), torch.nan)}, r"not finite"),
    ],
)
def test_broken_tensors_are_named(tmp_path: Path, changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(VoiceError, match=message):
        load(write(tmp_path / "broken.safetensors", **changes))


def test_missing_texts_are_named(tmp_path: Path) -> None:
    with pytest.raises(VoiceError, match="lacks transcript, description"):
        load(write(tmp_path / "v.safetensors", texts={"prompt_text": "x"}))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "v.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsError, match=r"v\.safetensors cannot be read"):
        load(path)


def test_a_directory_without_voices_is_named(tmp_path: Path) -> None:
    with pytest.raises(VoiceError, match="holds no voice"):
        load_voices(tmp_path, load_model_config(TINY_MODEL_DIR))


def test_a_pace_is_kept_in_the_file_and_nothing_else_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "anna.safetensors", texts=TEXTS | {"made_from": "a digest"})
    before = load(path)
    assert before.pace is None
    save_pace(path, VoicePace(1.5, 0.9))
    save_pace(path, VoicePace(1.9, 0.85))
    after = load(path)
    assert (after.pace, after.tokens_per_letter()) == (VoicePace(1.9, 0.85), 1.9)
    assert load_metadata(path)["made_from"] == "a digest", "it is not made again from its recording"
    assert (after.transcript, after.speech_tokens.tolist()) == (before.transcript, before.speech_tokens.tolist())
    assert torch.equal(after.mel, before.mel)
    save_voice(after, tmp_path / "copy.safetensors")
    assert load(tmp_path / "copy.safetensors").pace == after.pace


def test_equal_speech_has_an_equal_digest(tmp_path: Path) -> None:
    """By it a front knows whether an engine process has loaded what another has made."""

    def digest(voice: Voice) -> str:
        return voice.info(["en"]).digest

    path = write(tmp_path / "anna.safetensors", texts=TEXTS | {"made_from": "a digest"})
    first = load(path)
    save_pace(path, VoicePace(1.5, 0.9))
    assert digest(load(path)) == digest(first)
    save_voice(replace(first, description="another"), path)
    assert digest(load(path)) == digest(first)
    others = [
        load(write(path, texts=TEXTS | {"prompt_text": "Hello."})),
        load(write(path, speech_tokens=torch.arange(12) + 1)),
        load(write(path, mel=torch.ones(24, 80))),
        load(write(path, embedding=torch.zeros(192))),
    ]
    assert len({digest(voice) for voice in (first, *others)}) == 5


def test_a_pace_that_no_voice_can_have_is_told(tmp_path: Path) -> None:
    texts = TEXTS | {"tokens_per_letter": "900", "growing_share": "0.8"}
    with pytest.raises(VoiceError, match=r"anna\.safetensors: tokens_per_letter is 900\.0; .*; tune the voice again"):
        load(write(tmp_path / "anna.safetensors", texts=texts))
