"""A state dict that does not fit is refused with every fault named."""

import json
from dataclasses import replace

import pytest
import torch

from tests.support.flow import CPU, flow_config, flow_state
from tests.support.golden import COSYVOICE3_DIR, TINY_MODEL_DIR
from voicegate.engine.flow.weights import flow_shapes, load_flow_state
from voicegate.engine.model.config import EstimatorConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import WeightsError, load_state_dict

INV_FREQ = "decoder.estimator.rotary_embed.inv_freq"


def test_every_fault_is_listed() -> None:
    state = dict(flow_state())
    del state["spk_embed_affine_layer.bias"]
    state["decoder.estimator.proj_out.weight"] = torch.zeros(80, 63)
    state["decoder.estimator.transformer_blocks.2.attn.to_q.bias"] = torch.zeros(64)
    with pytest.raises(WeightsError) as caught:
        load_flow_state(flow_config(), state, device=CPU)
    message = str(caught.value)
    assert "missing: spk_embed_affine_layer.bias [80]" in message
    assert "misshaped: decoder.estimator.proj_out.weight is [80, 63], not [80, 64]" in message
    assert "unknown: decoder.estimator.transformer_blocks.2.attn.to_q.bias [64]" in message


def test_half_precision_is_loaded_as_float32() -> None:
    state = {key: tensor.half() for key, tensor in flow_state().items()}
    loaded = load_flow_state(flow_config(), state, device=CPU)
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    assert INV_FREQ not in loaded


def test_names_and_shapes_of_the_tiny_model() -> None:
    config = load_model_config(TINY_MODEL_DIR).flow
    state = load_state_dict(TINY_MODEL_DIR / "flow.safetensors")
    assert {key: tuple(tensor.shape) for key, tensor in state.items() if key != INV_FREQ} == flow_shapes(config)
    assert load_flow_state(config, state, device=CPU)[INV_FREQ].shape == (32,)


def test_names_and_shapes_of_the_released_model() -> None:
    manifest = json.loads((COSYVOICE3_DIR / "manifest_full.json").read_text())["flow.pt"]
    estimator = EstimatorConfig(dim=1024, depth=22, num_heads=16, head_dim=64, ff_mult=2, block_frames=50)
    released = replace(flow_config(), pre_lookahead_channels=1024, estimator=estimator)
    del manifest[INV_FREQ]
    assert {key: tuple(shape) for key, shape in manifest.items()} == flow_shapes(released)
