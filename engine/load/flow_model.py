"""CosyVoice3's flow, as it lies in a model's directory."""

from pathlib import Path

import torch

from voicegate.engine.flow.model import FlowModel
from voicegate.engine.load.files import load_weights, stored_noise
from voicegate.engine.model.config import ModelConfig


def load_flow_model(model_dir: Path, model: ModelConfig, device: torch.device, *, dtype: torch.dtype) -> FlowModel:
    """Raises WeightsError, OSError."""
    state = load_weights(model_dir, model, "flow")
    return FlowModel(model.cosyvoice3_flow, state, device=device, dtype=dtype, noise=stored_noise(model_dir))
