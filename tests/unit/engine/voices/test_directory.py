"""Pairs of recording and text become voice files once, again when either changes, and never over another's file."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.golden import TINY_MODEL_DIR
from tests.unit.engine.voices.onnx_models import write_speaker_encoder, write_speech_tokenizer
from tests.unit.engine.voices.sounds import file_of, speechlike
from voicegate.engine.interface import Unsupported
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_metadata
from voicegate.engine.voices.files import voice_names
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import VoiceError


@pytest.fixture(scope="module")
def model() -> ModelConfig:
    return load_model_config(TINY_MODEL_DIR)


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """With one voice of its own, a recording without text beside it, and encoders."""
    directory = tmp_path / "model"
    (directory / "voices").mkdir(parents=True)
    for name in ("voices/woman.safetensors", "voices/woman_prompt.wav"):
        shutil.copy(TINY_MODEL_DIR / name, directory / name)
    write_speech_tokenizer(directory / "speech_tokenizer_v3.onnx")
    write_speaker_encoder(directory / "campplus.onnx")
    return directory


@pytest.fixture
def voices_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "mine"
    directory.mkdir()
    return directory


def write_pair(directory: Path, name: str, text: str | None, *, seconds: float = 1.5) -> None:
    (directory / f"{name}.wav").write_bytes(file_of(speechlike(seconds)))
    if text is not None:
        (directory / f"{name}.txt").write_text(text, encoding="utf-8")


def test_pairs_become_voices_beside_the_models_own(model_dir: Path, model: ModelConfig, voices_dir: Path) -> None:
    write_pair(voices_dir, "anna", "\ufeffOne\n two.")
    write_pair(voices_dir, "ben", "")
    write_pair(model_dir / "voices", "cleo", "Three.")
    voices = load_voices(model_dir, model, voices_dir)
    assert {name: voice.transcript for name, voice in voices.items() if name != "woman"} == {
        "anna": "One two.",
        "ben": "",
        "cleo": "Three.",
    }
    assert sorted(path.name for path in voices_dir.iterdir()) == [
        "anna.safetensors", "anna.txt", "anna.wav", "ben.safetensors", "ben.txt", "ben.wav",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("recording", "text", "kind"),
    [
        ("anna.WAV", "anna.txt", "WAV"),
        ("anna.Wave", "anna.TXT", "WAV"),
        ("anna.flac", "anna.txt", "FLAC"),
        ("anna.FLAC", "anna.Txt", "FLAC"),
        ("anna.ogg", "anna.txt", "OGG"),
        ("anna.opus", "anna.txt", "OGG"),
        ("anna.mp3", "anna.txt", "MP3"),
    ],
)
def test_every_kind_that_can_be_added_whatever_the_case(
    recording: str, text: str, kind: str, model_dir: Path, model: ModelConfig, voices_dir: Path
) -> None:
    (voices_dir / recording).write_bytes(file_of(speechlike(1.5), kind=kind))
    (voices_dir / text).write_text("One two.")
    with capture_logs() as logs:
        assert load_voices(model_dir, model, voices_dir)["anna"].transcript == "One two."
        assert voice_names(voices_dir) == {"anna"}
        assert load_voices(model_dir, model, voices_dir)["anna"].transcript == "One two."
    assert [entry["event"] for entry in logs] == ["voice_enrolled"], "made once, and nothing is ignored"


def test_what_is_taken_for_no_voice_is_named(model_dir: Path, model: ModelConfig, voices_dir: Path) -> None:
    write_pair(voices_dir, "anna", "One two.")
    for name in ("ben.m4a", "ben.txt", "cleo.pt", "._anna.wav", "dora"):
        (voices_dir / name).write_bytes(b"x")
    (voices_dir / "old").mkdir()
    for name in ("notes.md", "eve.M4A"):
        (model_dir / "voices" / name).write_bytes(b"x")
    with capture_logs() as logs:
        assert set(load_voices(model_dir, model, voices_dir)) == {"woman", "anna"}
    told = [entry["files"] for entry in logs if entry["event"] == "voice_files_ignored"]
    assert told == [["eve.M4A"], ["ben.m4a", "ben.txt", "cleo.pt", "dora"]]


def test_two_recordings_of_one_name_are_told(model_dir: Path, model: ModelConfig, voices_dir: Path) -> None:
    write_pair(voices_dir, "anna", "One two.")
    (voices_dir / "anna.FLAC").write_bytes(file_of(speechlike(1.5), kind="FLAC"))
    with pytest.raises(VoiceError, match=r"anna\.FLAC and .*anna\.wav have one name: remove or rename all but one"):
        load_voices(model_dir, model, voices_dir)


def test_a_voice_is_made_again_only_when_its_pair_changed(
    model_dir: Path, model: ModelConfig, voices_dir: Path
) -> None:
    write_pair(voices_dir, "anna", "One two.")
    path = voices_dir / "anna.safetensors"

    def made() -> tuple[int, str]:
        voices = load_voices(model_dir, model, voices_dir)
        assert voices["anna"].transcript in ("One two.", "One three.")
        return path.stat().st_ino, load_metadata(path)["made_from"]

    first = made()
    assert made() == first
    (voices_dir / "anna.txt").write_text("One three.")
    second = made()
    assert second[0] != first[0]
    write_pair(voices_dir, "anna", "One three.", seconds=1.7)
    third = made()
    write_speech_tokenizer(model_dir / "speech_tokenizer_v3.onnx", num_extra=1)
    fourth = made()
    assert len({first[1], second[1], third[1], fourth[1]}) == 4


def test_the_users_voice_wins_over_the_models(model_dir: Path, model: ModelConfig, voices_dir: Path) -> None:
    write_pair(voices_dir, "woman", "Mine.")
    assert load_voices(model_dir, model, voices_dir)["woman"].transcript == "Mine."


def test_a_recording_without_text_is_named(model_dir: Path, model: ModelConfig, voices_dir: Path) -> None:
    write_pair(voices_dir, "anna", None)
    with pytest.raises(VoiceError, match=r"anna\.wav has no text: write what it says into anna\.txt"):
        load_voices(model_dir, model, voices_dir)


def test_a_recording_that_makes_no_voice_is_named(model_dir: Path, model: ModelConfig, voices_dir: Path) -> None:
    write_pair(voices_dir, "anna", "One.", seconds=0.5)
    with pytest.raises(VoiceError, match=r"anna\.wav: the recording is 0\.50 s long"):
        load_voices(model_dir, model, voices_dir)


def test_a_voice_that_came_otherwise_is_not_overwritten(model_dir: Path, model: ModelConfig) -> None:
    own = model_dir / "voices" / "woman.safetensors"
    before = own.read_bytes()
    write_pair(model_dir / "voices", "woman", "Good morning.")
    with pytest.raises(VoiceError, match=r"woman\.safetensors was not made from woman\.wav"):
        load_voices(model_dir, model)
    assert own.read_bytes() == before


def test_text_that_is_no_text_is_named(model_dir: Path, model: ModelConfig, voices_dir: Path) -> None:
    write_pair(voices_dir, "anna", "x")
    (voices_dir / "anna.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(VoiceError, match=r"anna\.txt is not UTF-8"):
        load_voices(model_dir, model, voices_dir)


def test_a_directory_that_cannot_be_written_still_gives_its_voices(
    model_dir: Path, model: ModelConfig, voices_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pair(voices_dir, "anna", "One two.")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("voicegate.engine.voices.directory.save_voice", refuse)
    assert load_voices(model_dir, model, voices_dir)["anna"].transcript == "One two."
    assert not (voices_dir / "anna.safetensors").exists()


def test_a_model_with_fixed_voices_says_so_where_a_pair_is(
    model_dir: Path, model: ModelConfig, voices_dir: Path
) -> None:
    for name in ("speech_tokenizer_v3.onnx", "campplus.onnx"):
        (model_dir / name).unlink()
    assert list(load_voices(model_dir, model, voices_dir)) == ["woman"]
    write_pair(voices_dir, "anna", "One two.")
    with pytest.raises(Unsupported, match="has fixed voices"):
        load_voices(model_dir, model, voices_dir)


def test_a_directory_that_is_not_there_is_named(model_dir: Path, model: ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(VoiceError, match="nowhere is no directory"):
        load_voices(model_dir, model, tmp_path / "nowhere")
