"""A recording and what it says -> a voice: without the silence around it, checked, heard by the model's encoders.

Where the first block of a voice ends is decided when it is loaded (FlowRunner.prepare), for it depends on
the engine's configuration and not on the voice.
"""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from voicegate.engine import units
from voicegate.engine.checks import check_voice_name
from voicegate.engine.interface import EngineError, Unsupported, VoiceRefused
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices import onnx_analyser, tiny_analyser
from voicegate.engine.voices.audio_file import decode_recording
from voicegate.engine.voices.checks import check_sound, check_speech, check_texts
from voicegate.engine.voices.features import PromptAudio
from voicegate.engine.voices.files import voice_files
from voicegate.engine.voices.onnx_analyser import OnnxAnalyser
from voicegate.engine.voices.tiny_analyser import TinyAnalyser
from voicegate.engine.voices.trimming import without_silence
from voicegate.engine.voices.voice import Voice, load_voice


class Analyser(Protocol):
    @property
    def identity(self) -> str:
        """Tells this checkpoint's encoders from others; known without loading them."""

    def speech_tokens(self, audio: PromptAudio) -> torch.Tensor:
        """[n] int64, 25 a second, as the LLM and the flow were trained on. Raises EngineError."""

    def embedding(self, audio: PromptAudio) -> torch.Tensor:
        """[192] float32, of the speaker, before normalisation. Raises EngineError."""


class Enroller:
    def __init__(self, analyser: Analyser, model: ModelConfig) -> None:
        self._analyser = analyser
        self._model = model

    @property
    def identity(self) -> str:
        """Changes where another analyser hears, or another prefix is written: what its voices depend on."""
        return f"{self._analyser.identity} {self._model.instruct_prefix}"

    @torch.no_grad()
    def enrol(self, name: str, recording: bytes, *, transcript: str = "", description: str = "") -> Voice:
        """`recording`: a sound file's content. Without transcript the voice is for cross-lingual use only.

        Takes seconds with upstream's encoders. Raises VoiceRefused, EngineError where the model's files are unfit.
        """
        audio, voice = self._outlined(name, recording, transcript, description)
        tokens = self._analyser.speech_tokens(audio)
        embedding = self._analyser.embedding(audio)
        self._check_analysis(tokens, embedding)
        # Whichever ends first ends the prompt, as upstream trims it.
        length = min(len(tokens), voice.num_tokens)
        if length == 0:
            raise VoiceRefused("the speech tokenizer heard nothing in the recording")
        mel = voice.mel[: length * units.FRAMES_PER_TOKEN]
        return replace(voice, speech_tokens=tokens[:length], mel=mel, embedding=embedding)

    def outline(self, name: str, recording: bytes, *, transcript: str = "", description: str = "") -> Voice:
        """As `enrol`, with zeros for what the encoders would hear: the same checks, and quick. Raises VoiceRefused."""
        return self._outlined(name, recording, transcript, description)[1]

    def _outlined(self, name: str, recording: bytes, transcript: str, description: str) -> tuple[PromptAudio, Voice]:
        transcript, description = " ".join(transcript.split()), " ".join(description.split())
        check_voice_name(name)
        check_texts(transcript, description)
        decoded = decode_recording(recording)
        check_sound(decoded)
        speech, trimmed = without_silence(decoded)
        check_speech(speech, transcript)
        audio = PromptAudio.from_samples(speech.samples, speech.rate_hz, mel_top_hz=self._model.mel_top_hz)
        num_tokens = len(audio.mel) // units.FRAMES_PER_TOKEN
        voice = Voice(
            name=name,
            description=description,
            prompt_text=self._model.instruct_prefix + transcript if transcript else "",
            transcript=transcript,
            speech_tokens=torch.zeros(num_tokens, dtype=torch.int64),
            mel=audio.mel[: num_tokens * units.FRAMES_PER_TOKEN],
            embedding=torch.zeros(self._model.flow.speaker_dim),
            trimmed=trimmed,
        )
        return audio, voice

    def _check_analysis(self, tokens: torch.Tensor, embedding: torch.Tensor) -> None:
        vocab_size, speaker_dim = self._model.flow.vocab_size, self._model.flow.speaker_dim
        if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < vocab_size):
            raise EngineError(f"the speech tokenizer gave ids beyond 0..{vocab_size - 1}: it is of another model")
        if tuple(embedding.shape) != (speaker_dim,) or not embedding.isfinite().all():
            raise EngineError(f"the speaker encoder gave {list(embedding.shape)}, not {speaker_dim} finite numbers")


def load_enroller(model_dir: Path, model: ModelConfig) -> Enroller:
    """The encoders that the model directory has. Raises Unsupported where it has none; EngineError, VoiceError."""
    tokenizer_file = model.speech_tokenizer
    if any((model_dir / name).is_file() for name in (tokenizer_file, onnx_analyser.SPEAKER_FILE)):
        return Enroller(OnnxAnalyser(model_dir, tokenizer_file), model)
    if (model_dir / tiny_analyser.TOKENIZER_FILE).is_file():
        known = [
            load_voice(path, vocab_size=model.flow.vocab_size, speaker_dim=model.flow.speaker_dim)
            for path in voice_files(model_dir / "voices").values()
        ]
        return Enroller(TinyAnalyser(model_dir, known), model)
    raise Unsupported(
        f"model {model.name!r} has fixed voices: {model_dir} lacks {tokenizer_file} and "
        f"{onnx_analyser.SPEAKER_FILE}, which hear a recording; copy them from the checkpoint's directory"
    )
