"""Voices added while an engine runs are there again at its next start, if it was given a directory for them."""

import errno
import os
from pathlib import Path

import pytest
import structlog
from safetensors.torch import save

from tests.support.golden import TINY_MODEL_DIR, TINY_VOICES
from tests.support.local_maker import LocalMaker
from voicegate.engine.interface import NewVoice
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.keeper import VoiceKeeper
from voicegate.engine.voices.pace import VoicePace
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import save_pace

RECORDING = (TINY_MODEL_DIR / "voices" / "man_prompt.wav").read_bytes()
OTHER_RECORDING = (TINY_MODEL_DIR / "voices" / "woman_prompt.wav").read_bytes()
TEXT = "Hello there, it is very nice to meet you."


@pytest.fixture(scope="module")
def model() -> ModelConfig:
    return load_model_config(TINY_MODEL_DIR)


async def test_a_saved_voice_is_there_at_the_next_start_until_deleted(tmp_path: Path, model: ModelConfig) -> None:
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path)
    keeper.save(await keeper.make(NewVoice("guest", RECORDING, TEXT, "a guest")))
    assert load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"].description == "a guest"
    keeper.delete("guest")
    keeper.delete("woman")  # the model's own: nothing of it lies here
    assert sorted(load_voices(TINY_MODEL_DIR, model, tmp_path)) == TINY_VOICES


async def test_a_voice_in_the_place_of_a_pairs_stays_until_the_pair_changes(tmp_path: Path, model: ModelConfig) -> None:
    (tmp_path / "guest.wav").write_bytes(RECORDING)
    (tmp_path / "guest.txt").write_text(TEXT)
    assert load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"].description == ""
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path)
    for description in ("another", "a third"):
        keeper.save(await keeper.make(NewVoice("guest", RECORDING, TEXT, description)))
        for _ in range(2):
            assert load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"].description == description
    (tmp_path / "guest.txt").write_text(TEXT + " Welcome.")
    assert load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"].transcript.endswith("Welcome.")


async def test_a_voice_beside_a_pair_whose_own_was_deleted_stays(tmp_path: Path, model: ModelConfig) -> None:
    """Or could not be written: there is no file that says what it was made from."""
    (tmp_path / "guest.wav").write_bytes(RECORDING)
    (tmp_path / "guest.txt").write_text(TEXT)
    load_voices(TINY_MODEL_DIR, model, tmp_path)
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path)
    keeper.delete("guest")
    for description in ("another", "a third"):
        keeper.save(await keeper.make(NewVoice("guest", RECORDING, TEXT, description)))
        for _ in range(2):
            assert load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"].description == description
    keeper.delete("guest")
    assert load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"].description == ""


async def test_a_voice_takes_the_place_of_a_file_that_is_none(tmp_path: Path, model: ModelConfig) -> None:
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path)
    (tmp_path / "guest.safetensors").write_bytes(b"half of one")
    keeper.save(await keeper.make(NewVoice("guest", RECORDING, TEXT)))
    assert "guest" in load_voices(TINY_MODEL_DIR, model, tmp_path)


async def test_without_a_directory_nothing_is_written(tmp_path: Path, model: ModelConfig) -> None:
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), None)
    before = sorted((TINY_MODEL_DIR / "voices").iterdir())
    keeper.save(await keeper.make(NewVoice("guest", RECORDING)))
    keeper.delete("woman")
    assert sorted((TINY_MODEL_DIR / "voices").iterdir()) == before


async def test_a_directory_that_went_away_is_a_warning(tmp_path: Path, model: ModelConfig) -> None:
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path / "gone")
    voice = await keeper.make(NewVoice("guest", RECORDING, TEXT))
    with structlog.testing.capture_logs() as lines:
        keeper.save(voice)
    assert [line["event"] for line in lines] == ["voice_not_saved"]


def test_a_full_disk_is_a_warning_and_leaves_no_half_voice(
    tmp_path: Path, model: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path)
    voice = load_voices(TINY_MODEL_DIR, model)["woman"]

    def fill_up(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fill_up)
    with structlog.testing.capture_logs() as lines:
        keeper.save(voice)
    assert [(line["event"], line["reason"]) for line in lines] == [("voice_not_saved", "No space left on device")]
    assert list(tmp_path.iterdir()) == []


async def test_a_pace_stands_until_another_recording_or_text_comes(tmp_path: Path, model: ModelConfig) -> None:
    """As several engine processes make a voice, one after the other, and as it is made again."""
    pace, path = VoicePace(2.0, 0.7), tmp_path / "guest.safetensors"
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path)
    for number, (recording, text, is_kept) in enumerate(
        ((RECORDING, TEXT, True), (RECORDING, TEXT + " Welcome.", False), (OTHER_RECORDING, TEXT, False))
    ):
        keeper.save(await keeper.make(NewVoice("guest", RECORDING, TEXT)))
        save_pace(path, pace)
        keeper.save(await keeper.make(NewVoice("guest", recording, text, f"description {number}")))
        found = load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"]
        assert (found.pace, found.description) == (pace if is_kept else None, f"description {number}")


async def test_a_pace_that_cannot_be_read_is_none(tmp_path: Path, model: ModelConfig) -> None:
    keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, model), tmp_path)
    voice = await keeper.make(NewVoice("guest", RECORDING, TEXT))
    path = tmp_path / "guest.safetensors"
    texts = {"prompt_text": voice.prompt_text, "tokens_per_letter": "fast"}
    for tensors in ({"speech_tokens": voice.speech_tokens}, {"mel": voice.mel}):
        path.write_bytes(save(tensors, metadata=texts))
        keeper.save(voice)
        assert load_voices(TINY_MODEL_DIR, model, tmp_path)["guest"].pace is None
