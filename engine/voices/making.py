"""A recording -> a voice, in the calling process: the encoders are loaded for it and dropped again."""

from pathlib import Path

import msgspec
import torch

from voicegate.engine.interface import EngineError, NewVoice
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.enrolment import load_enroller
from voicegate.engine.voices.maker_wire import Answer, Made, NotMade, Task
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
    return Made(packed(voice))


def packed(voice: Voice) -> bytes:
    return msgspec.msgpack.encode(voice, enc_hook=_plain)


def unpacked(content: bytes) -> Voice:
    voice: Voice = msgspec.msgpack.decode(content, type=Voice, dec_hook=_tensor)
    return voice


def _plain(tensor: torch.Tensor) -> tuple[str, list[int], bytes]:
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape), tensor.contiguous().numpy().tobytes()


def _tensor(_: type, plain: tuple[str, list[int], bytes]) -> torch.Tensor:
    dtype, shape, content = plain
    return torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).reshape(shape)
