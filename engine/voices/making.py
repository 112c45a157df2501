"""A recording -> a voice, in the calling process: the encoders are loaded for it and dropped again."""

from pathlib import Path

import torch

from voicegate.engine import units
from voicegate.engine.interface import EngineError, NewVoice
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.enrolment import load_enroller
from voicegate.engine.voices.maker_wire import Answer, Made, NotMade, Task
from voicegate.engine.voices.trimming import Trimmed
from voicegate.engine.voices.voice import Voice


def make_voice(model_dir: Path, model: ModelConfig, new: NewVoice) -> Voice:
    """Takes seconds with upstream's encoders. Raises VoiceRefused, Unsupported, EngineError."""
    try:
        enroller = load_enroller(model_dir, model)
        return enroller.enrol(new.name, new.recording, transcript=new.transcript, description=new.description)
    except (ValueError, OSError) as error:
        raise EngineError(f"no voice can be made: {error}") from error


def answer_to(task: Task) -> Answer:
    """Faults of the recording or the model's files are an answer, too."""
    torch.set_num_threads(task.num_threads)
    model_dir = Path(task.model_dir)
    try:
        voice = make_voice(model_dir, load_model_config(model_dir), task.voice)
    except EngineError as error:
        return NotMade(type(error).__name__, str(error))
    return Made(
        prompt_text=voice.prompt_text,
        transcript=voice.transcript,
        description=voice.description,
        speech_tokens=_bytes_of(voice.speech_tokens, torch.int64),
        mel=_bytes_of(voice.mel, torch.float32),
        embedding=_bytes_of(voice.embedding, torch.float32),
        trimmed_s=(voice.trimmed.start_s, voice.trimmed.end_s),
    )


def voice_of(name: str, made: Made) -> Voice:
    return Voice(
        name=name,
        description=made.description,
        prompt_text=made.prompt_text,
        transcript=made.transcript,
        speech_tokens=torch.frombuffer(bytearray(made.speech_tokens), dtype=torch.int64),
        mel=torch.frombuffer(bytearray(made.mel), dtype=torch.float32).reshape(-1, units.NUM_MELS),
        embedding=torch.frombuffer(bytearray(made.embedding), dtype=torch.float32),
        trimmed=Trimmed(*made.trimmed_s),
    )


def _bytes_of(tensor: torch.Tensor, dtype: torch.dtype) -> bytes:
    assert tensor.dtype is dtype, f"{tensor.dtype} is not {dtype}"
    return tensor.contiguous().numpy().tobytes()
