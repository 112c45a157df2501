"""A recording becomes a voice: by upstream's two ONNX models, by the tiny model's encoder, or not at all."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.upstream_stepaudio2 import SMALL_STEPAUDIO2
from tests.unit.engine.voices.onnx_models import write_speaker_encoder, write_speech_tokenizer
from tests.unit.engine.voices.sounds import file_of, speechlike
from voicegate.bench.full_size.stepaudio2 import stepaudio2_config
from voicegate.engine.interface import EngineError, Unsupported, VoiceRefused
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.enrolment import Enroller, load_enroller
from voicegate.engine.voices.features import PromptAudio, mel_24k, speaker_fbank, whisper_log_mel
from voicegate.engine.voices.voice import Voice, load_voice, save_voice

RECORDING = file_of(speechlike(), subtype="FLOAT")


@pytest.fixture(scope="module")
def model() -> ModelConfig:
    return load_model_config(TINY_MODEL_DIR)


def onnx_enroller(directory: Path, model: ModelConfig, *, num_extra: int = 0, offset: int = 0) -> Enroller:
    write_speech_tokenizer(directory / "speech_tokenizer_v3.onnx", num_extra=num_extra, offset=offset)
    write_speaker_encoder(directory / "campplus.onnx")
    return load_enroller(directory, model)


def shipped(name: str) -> Voice:
    return load_voice(TINY_MODEL_DIR / "voices" / f"{name}.safetensors", vocab_size=6561, speaker_dim=192)


def test_the_onnx_models_hear_upstreams_features(tmp_path: Path, model: ModelConfig) -> None:
    voice = onnx_enroller(tmp_path, model).enrol("anna", RECORDING, transcript=" One\ntwo. ", description="a buzz")
    audio = PromptAudio.from_samples(torch.from_numpy(speechlike()), 24_000)
    features = whisper_log_mel(audio.samples_16k)
    torch.testing.assert_close(voice.speech_tokens, features.argmax(0)[3::4])
    spread = speaker_fbank(audio.samples_16k).square().mean(0).repeat(3)[:192]
    torch.testing.assert_close(voice.embedding, spread, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(voice.mel, audio.mel)
    assert (voice.name, voice.transcript, voice.description) == ("anna", "One two.", "a buzz")
    assert voice.prompt_text == "You are a helpful assistant.<|endofprompt|>One two."


def test_the_second_familys_voices_are_made_with_its_own_encoders(tmp_path: Path) -> None:
    """Another tokenizer's file, a mel that ends at 8 kHz, no instruction before the transcript."""
    model = stepaudio2_config(SMALL_STEPAUDIO2)
    write_speaker_encoder(tmp_path / "campplus.onnx")
    with pytest.raises(EngineError, match=r"speech_tokenizer_v2_25hz\.onnx is missing"):
        load_enroller(tmp_path, model)
    write_speech_tokenizer(tmp_path / "speech_tokenizer_v2_25hz.onnx")
    voice = load_enroller(tmp_path, model).enrol("anna", RECORDING, transcript="One two.")
    audio = PromptAudio.from_samples(torch.from_numpy(speechlike()), 24_000)
    torch.testing.assert_close(voice.mel, mel_24k(audio.samples_24k, top_hz=8000))
    assert not torch.allclose(voice.mel, audio.mel)
    torch.testing.assert_close(voice.speech_tokens, whisper_log_mel(audio.samples_16k).argmax(0)[3::4])
    assert voice.prompt_text == "One two."


@pytest.mark.parametrize(("num_extra", "num_tokens"), [(0, 50), (3, 50)])
def test_tokens_and_mel_end_together(tmp_path: Path, model: ModelConfig, num_extra: int, num_tokens: int) -> None:
    voice = onnx_enroller(tmp_path, model, num_extra=num_extra).enrol("v", RECORDING)
    assert (voice.num_tokens, len(voice.mel)) == (num_tokens, 2 * num_tokens)


def test_a_half_token_of_mel_is_left_out(tmp_path: Path, model: ModelConfig) -> None:
    voice = onnx_enroller(tmp_path, model).enrol("v", file_of(speechlike(1.39)))
    assert (voice.num_tokens, len(voice.mel)) == (34, 68)


def test_without_transcript_there_is_no_prompt_text(tmp_path: Path, model: ModelConfig) -> None:
    voice = onnx_enroller(tmp_path, model).enrol("v", RECORDING, transcript="  ")
    assert (voice.transcript, voice.prompt_text) == ("", "")


@pytest.mark.parametrize("name", ["woman", "man"])
def test_the_tiny_model_makes_its_own_voices_again(model: ModelConfig, name: str) -> None:
    recording = (TINY_MODEL_DIR / "voices" / f"{name}_prompt.wav").read_bytes()
    wanted = shipped(name)
    voice = load_enroller(TINY_MODEL_DIR, model).enrol(name, recording, transcript=wanted.transcript)
    assert voice.speech_tokens.tolist() == wanted.speech_tokens.tolist()
    torch.testing.assert_close(voice.mel, wanted.mel, rtol=0, atol=5e-3)  # shipped as float16
    assert torch.equal(voice.embedding, wanted.embedding)
    assert voice.prompt_text == wanted.prompt_text


def test_a_voice_survives_its_file(tmp_path: Path, model: ModelConfig) -> None:
    voice = onnx_enroller(tmp_path, model).enrol("anna", RECORDING, transcript="One two.", description="a buzz")
    save_voice(voice, tmp_path / "anna.safetensors")
    loaded = load_voice(tmp_path / "anna.safetensors", vocab_size=6561, speaker_dim=192)
    assert torch.equal(loaded.speech_tokens, voice.speech_tokens)
    assert torch.equal(loaded.mel, voice.mel)
    assert (loaded.prompt_text, loaded.transcript) == (voice.prompt_text, voice.transcript)
    assert [path.name for path in tmp_path.glob("*anna*")] == ["anna.safetensors"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, model: ModelConfig) -> None:
    voice = onnx_enroller(tmp_path, model).enrol("anna", RECORDING)
    taken = tmp_path / "anna.safetensors"
    taken.mkdir()
    with pytest.raises(OSError, match="anna"):
        save_voice(voice, taken)
    assert list(tmp_path.glob("*.partial")) == []


# --- what cannot be --------------------------------------------------------------------------------------


def test_a_model_without_encoders_has_fixed_voices(tmp_path: Path, model: ModelConfig) -> None:
    with pytest.raises(Unsupported, match=r"fixed voices: .* lacks speech_tokenizer_v3\.onnx and campplus\.onnx"):
        load_enroller(tmp_path, model)


def test_the_missing_encoder_is_named(tmp_path: Path, model: ModelConfig) -> None:
    write_speech_tokenizer(tmp_path / "speech_tokenizer_v3.onnx")
    with pytest.raises(EngineError, match=r"campplus\.onnx is missing"):
        load_enroller(tmp_path, model)


def test_a_broken_encoder_is_named(tmp_path: Path, model: ModelConfig) -> None:
    enroller = onnx_enroller(tmp_path, model)
    (tmp_path / "campplus.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(EngineError, match=r"campplus\.onnx cannot be loaded"):
        enroller.enrol("v", RECORDING)


def test_another_models_encoder_is_named(tmp_path: Path, model: ModelConfig) -> None:
    write_speaker_encoder(tmp_path / "speech_tokenizer_v3.onnx")
    write_speaker_encoder(tmp_path / "campplus.onnx")
    with pytest.raises(EngineError, match="2 inputs were expected"):
        load_enroller(tmp_path, model).enrol("v", RECORDING)


def test_ids_and_embeddings_that_do_not_fit_are_refused(tmp_path: Path, model: ModelConfig) -> None:
    enroller = onnx_enroller(tmp_path, model, offset=7_000)
    with pytest.raises(EngineError, match=r"beyond 0\.\.6560"):
        enroller.enrol("v", RECORDING)
    write_speech_tokenizer(tmp_path / "speech_tokenizer_v3.onnx")
    write_speaker_encoder(tmp_path / "campplus.onnx", dim=100)
    with pytest.raises(EngineError, match=r"gave \[100\], not 192"):
        load_enroller(tmp_path, model).enrol("v", RECORDING)


def test_a_tiny_model_that_lost_its_voices_makes_none(tmp_path: Path, model: ModelConfig) -> None:
    for name in ("model.json", "speech_tokenizer.safetensors"):
        shutil.copy(TINY_MODEL_DIR / name, tmp_path / name)
    with pytest.raises(Unsupported, match="it has none"):
        load_enroller(tmp_path, model)


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", ".hidden", "-x", "x" * 65, "a b", pytest.param("\U00010428" * 64, id="256 bytes")]
)
def test_names_that_are_no_file_names_are_refused(model: ModelConfig, name: str) -> None:
    with pytest.raises(VoiceRefused, match="cannot be a voice's name"):
        load_enroller(TINY_MODEL_DIR, model).enrol(name, RECORDING)
