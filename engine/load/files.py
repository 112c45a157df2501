"""A model directory's files as a start reads them, each checked whole: `voicegate doctor` reads them so, too."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch

from voicegate.engine.families.stepaudio2.flow.weights import check_flow as check_stepaudio2_flow
from voicegate.engine.families.stepaudio2.vocoder.weights import check_vocoder as check_stepaudio2_vocoder
from voicegate.engine.flow.weights import check_flow
from voicegate.engine.llm.model import check_state_dict as check_llm
from voicegate.engine.model.config import FLOW_BLOCK_FRAMES, FlowConfig, ModelConfig
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.model.weights import WeightsError, load_state_dict
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.units import NUM_MELS
from voicegate.engine.vocoder.weights import check_vocoder

State = Mapping[str, torch.Tensor]

PARTS: Final = ("llm", "flow", "vocoder")


def load_tokenizer(model_dir: Path, model: ModelConfig) -> TextTokenizer:
    """Raises TokenizerError."""
    return TextTokenizer.from_file(model_dir / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id)


def load_weights(model_dir: Path, model: ModelConfig, part: str) -> State:
    """`part`: of PARTS. Mapped; names and shapes are checked. Raises WeightsError, which names the file."""
    path = model_dir / f"{part}.safetensors"
    state = load_state_dict(path)
    try:
        _check_of(model, part)(state)
    except ValueError as error:
        raise WeightsError(f"{path}: {error}") from error
    return state


def stored_noise(model_dir: Path) -> torch.Tensor | None:
    """Converted models may bring it, for the CPUs whose torch draws other bits; None: it is drawn here."""
    path = model_dir / "flow_noise.safetensors"
    if not path.exists():
        return None
    noise = load_state_dict(path).get("noise")
    if noise is None or noise.dim() != 2 or noise.shape[0] != NUM_MELS or noise.shape[1] % FLOW_BLOCK_FRAMES:
        raise WeightsError(f"{path} holds no noise [{NUM_MELS}, a multiple of {FLOW_BLOCK_FRAMES}]: convert anew")
    return noise


def _check_of(model: ModelConfig, part: str) -> Callable[[State], None]:
    llm, flow, vocoder = model.llm, model.flow, model.vocoder
    match part, flow:
        case "llm", _:
            return lambda state: check_llm(llm, state)
        case "flow", FlowConfig():
            return lambda state: check_flow(flow, state)
        case "flow", StepAudio2FlowConfig():
            return lambda state: check_stepaudio2_flow(flow, state)
        case _, FlowConfig():
            return lambda state: check_vocoder(vocoder, state)
        case _:
            return lambda state: check_stepaudio2_vocoder(vocoder, state)
