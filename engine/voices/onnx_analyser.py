"""The encoders of an upstream checkpoint: its speech tokenizer and `campplus.onnx`, by onnxruntime on the CPU.

onnxruntime and the models (1 GB) are loaded when the first recording comes.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from voicegate.engine.interface import EngineError
from voicegate.engine.voices.features import PromptAudio, speaker_fbank, whisper_log_mel

SPEAKER_FILE: Final = "campplus.onnx"
# More make one voice faster, and steal more from streams that are being spoken meanwhile.
_NUM_THREADS: Final = 2


class OnnxAnalyser:
    def __init__(self, model_dir: Path, tokenizer_file: str) -> None:
        """Raises EngineError where one of the two files is missing."""
        self._tokenizer_path, self._speaker_path = model_dir / tokenizer_file, model_dir / SPEAKER_FILE
        paths = (self._tokenizer_path, self._speaker_path)
        for path in paths:
            if not path.is_file():
                raise EngineError(f"{path} is missing: without it no voice can be made; copy it from the checkpoint")
        self.identity = "onnx " + " ".join(str(path.stat().st_size) for path in paths)

    def speech_tokens(self, audio: PromptAudio) -> torch.Tensor:
        features = whisper_log_mel(audio.samples_16k)[None]
        length = np.array([features.shape[2]], dtype=np.int32)
        return _run(self._tokenizer_path, self._tokenizer, [features.numpy(), length]).long()

    def embedding(self, audio: PromptAudio) -> torch.Tensor:
        return _run(self._speaker_path, self._speaker, [speaker_fbank(audio.samples_16k)[None].numpy()]).float()

    @cached_property
    def _tokenizer(self) -> Any:
        return _open(self._tokenizer_path, num_inputs=2)

    @cached_property
    def _speaker(self) -> Any:
        return _open(self._speaker_path, num_inputs=1)


def _open(path: Path, *, num_inputs: int) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415 - half a second that only those who make voices pay
    except ImportError as error:
        raise EngineError("making voices needs onnxruntime: `pip install onnxruntime`") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _NUM_THREADS
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has one class per status, and no narrower base
        raise EngineError(f"{path} cannot be loaded, it may be truncated: {_first_line(error)}") from error
    found = [graph_input.name for graph_input in session.get_inputs()]
    if len(found) != num_inputs:
        raise EngineError(f"{path} takes {', '.join(found)}: {num_inputs} inputs were expected, it is another model")
    return session


def _run(path: Path, session: Any, values: Sequence[np.ndarray[Any, Any]]) -> torch.Tensor:
    """The first output, flat. Inputs by position, as upstream feeds them."""
    feed = {graph_input.name: value for graph_input, value in zip(session.get_inputs(), values, strict=True)}
    try:
        output = session.run(None, feed)[0]
    except Exception as error:  # as above
        raise EngineError(f"{path} failed on the recording: {_first_line(error)}") from error
    return torch.from_numpy(np.asarray(output).reshape(-1).copy())


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
