"""The second family, CosyVoice2's LLM with Step-Audio2's token2wav: the latter's sizes, from model.json. No torch.

The section `token2wav` has a part for each of upstream's modules, with that module's constructor arguments as keys:
flow, encoder, decoder, estimator, hift, f0_predictor. What the modules can do besides is refused: no checkpoint has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from voicegate.engine import units
from voicegate.engine.model.config import EULER_STEPS
from voicegate.engine.model.model_json import euler_steps, vocoder_config

SPEECH_TOKENIZER: Final = "speech_tokenizer_v2_25hz.onnx"

# The encoder is written for these; another value in the section would mean another network.
_ENCODER: Final[Mapping[str, object]] = {
    "input_layer": "linear",
    "up_stride": units.FRAMES_PER_TOKEN,
    "up_scale_factor": units.FRAMES_PER_TOKEN,
    "pos_enc_layer_type": "rel_pos_espnet",
    "selfattention_layer_type": "rel_selfattn",
    "key_bias": True,
    "normalize_before": True,
}
# x, mu, speaker, cond: what the estimator's input projection sees of a frame, in this order.
_INPUT_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class ConformerConfig:
    dim: int
    lookahead_tokens: int
    num_layers: int  # at the speech tokens' rate
    num_up_layers: int  # at the mel frames' rate
    num_heads: int
    feed_forward_units: int

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads


@dataclass(frozen=True, slots=True)
class ConvDitConfig:
    """The estimator, whose blocks have a convolution between attention and MLP."""

    dim: int
    depth: int
    num_heads: int
    head_dim: int
    mlp_units: int


@dataclass(frozen=True, slots=True)
class StepAudio2FlowConfig:
    vocab_size: int
    speaker_dim: int
    cfg_rate: float
    encoder: ConformerConfig
    estimator: ConvDitConfig
    num_euler_steps: int = EULER_STEPS

    @property
    def lookahead_tokens(self) -> int:
        return self.encoder.lookahead_tokens


def token2wav(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ModelConfig, from model.json. Raises KeyError, TypeError or ValueError."""
    parts = raw["token2wav"]
    return {
        "flow": stepaudio2_flow_config(parts),
        "vocoder": vocoder_config(parts["hift"], f0_channels=parts["f0_predictor"]["cond_channels"]),
        "speech_tokenizer": SPEECH_TOKENIZER,
    }


def stepaudio2_flow_config(raw: Mapping[str, Any]) -> StepAudio2FlowConfig:
    """From the section `token2wav`. Raises KeyError, TypeError or ValueError."""
    flow, encoder, estimator = raw["flow"], raw["encoder"], raw["estimator"]
    for key, wanted in _ENCODER.items():
        if encoder[key] != wanted:
            raise ValueError(f"token2wav.encoder.{key} is {encoder[key]!r}, not {wanted!r}")
    if not flow["input_size"] == encoder["input_size"] == encoder["output_size"]:
        raise ValueError("token2wav: the flow's input_size and the encoder's input_size and output_size must be equal")
    mels = (flow["output_size"], estimator["in_channels"], estimator["out_channels"])
    if mels != (units.NUM_MELS, _INPUT_PARTS * units.NUM_MELS, units.NUM_MELS):
        raise ValueError(f"token2wav: mel bins in and out of the flow are {mels}, not (80, 320, 80)")
    return StepAudio2FlowConfig(
        vocab_size=flow["vocab_size"],
        speaker_dim=flow["spk_embed_dim"],
        cfg_rate=raw["decoder"]["inference_cfg_rate"],
        num_euler_steps=euler_steps(raw["decoder"], "token2wav.decoder"),
        encoder=ConformerConfig(
            dim=encoder["output_size"],
            lookahead_tokens=encoder["pre_lookahead_len"],
            num_layers=encoder["num_blocks"],
            num_up_layers=encoder["num_up_blocks"],
            num_heads=encoder["attention_heads"],
            feed_forward_units=encoder["linear_units"],
        ),
        estimator=ConvDitConfig(
            dim=estimator["hidden_size"],
            depth=estimator["depth"],
            num_heads=estimator["num_heads"],
            head_dim=estimator["head_dim"],
            mlp_units=int(estimator["mlp_ratio"] * estimator["hidden_size"]),
        ),
    )
