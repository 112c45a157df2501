"""What `voicegate doctor` says of TensorRT's engines."""

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.device.tensorrt.engine_files import EngineFilesError
from voicegate.engine.device.tensorrt.library import TensorrtError
from voicegate.engine.interface import EngineError
from voicegate.engine.load.flow_engines import flow_engines
from voicegate.engine.load.tensorrt_engines import check_family
from voicegate.engine.load.vocoder_engines import vocoder_engines
from voicegate.engine.model.config import ModelConfig


def usable_engines(part: str, config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
    """Those of the vocoder or the flow, in a few words. Raises EngineError that says why they cannot be used."""
    check_family(model)
    if device.type != "cuda":
        raise EngineError("TensorRT's engines need a GPU, and torch sees none, or device is cpu")
    try:
        if part == "vocoder":
            found = vocoder_engines(config, model).find(config, device).described
        else:
            found = flow_engines(config, model).find(config, device).described
    except (EngineFilesError, TensorrtError, OSError) as error:
        raise EngineError(str(error)) from error
    return found
