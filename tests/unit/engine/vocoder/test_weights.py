"""A checkpoint is taken only if every name and shape is right; weight norm is folded as torch applies it."""

import dataclasses
import json

import pytest
import torch

from tests.support import golden
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.weights import WeightsError
from voicegate.engine.vocoder.weights import load_vocoder_weights, vocoder_shapes

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def config() -> VocoderConfig:
    return golden.golden_vocoder_config()


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    return golden.golden_state_dict("hift")


def test_shapes_are_those_of_the_released_checkpoint(config: VocoderConfig) -> None:
    released = dataclasses.replace(config, base_channels=512, f0_channels=512)
    manifest = json.loads((golden.COSYVOICE3_DIR / "manifest_full.json").read_text())["hift.pt"]
    assert vocoder_shapes(released) == {key: tuple(shape) for key, shape in manifest.items()}


def test_norms_are_folded_as_torch_folds_them(config: VocoderConfig, state: dict[str, torch.Tensor]) -> None:
    folded = load_vocoder_weights(config, state, device=CPU)
    gain, direction = (state[f"ups.1.parametrizations.weight.original{part}"] for part in (0, 1))
    assert torch.allclose(folded["ups.1.weight"], torch._weight_norm(direction, gain), atol=1e-7)
    assert folded["f0_predictor.condnet.0.weight"].dtype == torch.float64
    assert folded["ups.1.weight"].dtype == torch.float32


def test_prefix_of_training_checkpoints_and_half_precision_are_taken(
    config: VocoderConfig, state: dict[str, torch.Tensor]
) -> None:
    prefixed = {f"generator.{key}": tensor.half() for key, tensor in state.items()}
    halves = {key: tensor.half() for key, tensor in state.items()}
    expected = load_vocoder_weights(config, halves, device=CPU)
    loaded = load_vocoder_weights(config, prefixed, device=CPU)
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)


def test_all_faults_are_named_at_once(config: VocoderConfig, state: dict[str, torch.Tensor]) -> None:
    broken = {key: tensor for key, tensor in state.items() if key != "conv_pre.bias"}
    broken["conv_post.bias"] = torch.zeros(17)
    broken["stranger"] = torch.zeros(3)
    with pytest.raises(WeightsError) as raised:
        load_vocoder_weights(config, broken, device=CPU)
    message = str(raised.value)
    assert "missing: conv_pre.bias [32]" in message
    assert "misshaped: conv_post.bias is [17], not [18]" in message
    assert "unknown: stranger [3]" in message


@pytest.mark.parametrize(
    "change",
    [
        {"upsample_rates": (8, 5, 2)},
        {"look_right_frames": 3},
        {"stft_size": 32},
        {"upsample_kernels": (16, 11)},
        {"resblock_dilations": ((1, 3, 5),)},
    ],
)
def test_sizes_that_the_code_takes_for_granted_are_checked(config: VocoderConfig, change: dict[str, object]) -> None:
    with pytest.raises(WeightsError, match="cannot be run"):
        load_vocoder_weights(dataclasses.replace(config, **change), {}, device=CPU)  # type: ignore[arg-type]
