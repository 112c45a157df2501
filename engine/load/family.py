"""A model directory's files as a start reads them, each checked whole: `voicegate doctor` reads them so, too.

The family of the model knows which tensors flow and vocoder have.
"""

from functools import partial
from pathlib import Path
from typing import Final

import torch

from voicegate.engine import additions
from voicegate.engine.llm.torch.model import check_state_dict as check_llm
from voicegate.engine.load.cosyvoice3 import CosyVoice3
from voicegate.engine.load.seams import Family
from voicegate.engine.model.config import COSYVOICE3, ModelConfig
from voicegate.engine.model.weights import load_checked
from voicegate.engine.text.tokenizer import TextTokenizer

PARTS: Final = ("llm", "flow", "vocoder")


def family_of(model: ModelConfig) -> Family:
    """Raises MissingAddition."""
    if model.family == COSYVOICE3:
        return CosyVoice3()
    family: Family = additions.load(model.family, "addition").ADDITION
    return family


def load_tokenizer(model_dir: Path, model: ModelConfig) -> TextTokenizer:
    """Raises TokenizerError."""
    return TextTokenizer.from_file(model_dir / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id)


def load_weights(model_dir: Path, model: ModelConfig, part: str) -> dict[str, torch.Tensor]:
    """`part`: of PARTS. Mapped; names and shapes are checked. Raises WeightsError, which names the file."""
    check = partial(check_llm, model.llm) if part == "llm" else partial(family_of(model).check, part, model)
    return load_checked(model_dir / f"{part}.safetensors", check)
