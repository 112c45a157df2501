"""CosyVoice3's flow, as it lies in a model's directory."""

from pathlib import Path

import torch

from voicegate.engine.loading.flow_room import stored_noise
from voicegate.engine.model.config import FlowConfig
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.token2wav.flow.model import FlowModel


def load_flow_model(model_dir: Path, flow: FlowConfig, device: torch.device, *, dtype: torch.dtype) -> FlowModel:
    """Raises WeightsError, OSError."""
    state = load_state_dict(model_dir / "flow.safetensors")
    return FlowModel(flow, state, device=device, dtype=dtype, noise=stored_noise(model_dir))
