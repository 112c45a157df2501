"""Golden data of Step-Audio2's token2wav, and the name-keyed weights and noise that they were made with.

The rule is in tests/golden/stepaudio2_dit/README.md; the checks are stored there, the weights are not.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tests.support.golden import GOLDEN_DIR, name_keyed_generator
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.config import StepAudio2FlowConfig, stepaudio2_flow_config
from voicegate.engine.families.stepaudio2.flow.bucket_solver import BucketConfig, BucketSolver
from voicegate.engine.families.stepaudio2.flow.chunking import CHUNK_TOKENS, ChunkSchedule, whole_context
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.passes import EulerStep
from voicegate.engine.families.stepaudio2.flow.runner import StepAudio2FlowRunner
from voicegate.engine.families.stepaudio2.flow.stream import ChunkStream, ContextRule, StreamRules
from voicegate.engine.families.stepaudio2.flow.torch_solver import TorchSolver
from voicegate.engine.families.stepaudio2.flow.weights import flow_shapes
from voicegate.engine.families.stepaudio2.vocoder.bucket_caller import BucketCaller, CallConfig
from voicegate.engine.families.stepaudio2.vocoder.calls import Caller, Decode, TorchCaller
from voicegate.engine.families.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.families.stepaudio2.vocoder.renderer import OverlapRenderer
from voicegate.engine.families.stepaudio2.vocoder.weights import vocoder_shapes
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.model_json import vocoder_config
from voicegate.engine.vocoder.runner import VocoderRunner

CPU = torch.device("cpu")
STEPAUDIO2_DIR = GOLDEN_DIR / "stepaudio2_dit"


def load_arrays(file_name: str) -> dict[str, torch.Tensor]:
    """All arrays of one .npz of this family."""
    with np.load(STEPAUDIO2_DIR / file_name) as archive:
        return {key: torch.from_numpy(archive[key]) for key in archive.files}


def tiny_section() -> dict[str, Any]:
    """The section `token2wav` of model.json: the sizes of the modules that made the golden data."""
    section: dict[str, Any] = json.loads((STEPAUDIO2_DIR / "config_tiny.json").read_text())
    return {key: part for key, part in section.items() if key not in ("full", "s3tokenizer")}


def flow_config() -> StepAudio2FlowConfig:
    return stepaudio2_flow_config(tiny_section())


def golden_vocoder_config() -> VocoderConfig:
    section = tiny_section()
    return vocoder_config(section["hift"], f0_channels=section["f0_predictor"]["cond_channels"])


def normal(key: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A name-keyed array of standard normal numbers."""
    return torch.from_numpy(name_keyed_generator(key).standard_normal(shape).astype(np.float32))


def weight(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """One parameter by the golden README's weight rule."""
    drawn = name_keyed_generator(name).standard_normal(shape).astype(np.float32)
    last = name.rpartition(".")[2]
    if last == "original0":
        gain = 0.3 if ".convs2." in name else 0.4 if name.startswith("conv_post.") else 1.0
        value = (1 + np.float32(0.1) * np.abs(drawn)) * np.float32(gain)
    elif last == "alpha" or (len(shape) == 1 and last == "weight"):
        value = 1 + np.float32(0.1) * drawn
    elif len(shape) >= 2:
        value = drawn * np.float32(0.5 / np.sqrt(np.prod(shape[1:]))) * np.float32(_GAINS.get(name, 1.0))
    else:
        value = np.float32(0.1) * drawn
    return value.astype(np.float32)


_GAINS = {"f0_predictor.classifier.weight": 300.0, "decoder.estimator.final_layer.linear.weight": 2.0}


def generated(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(weight(name, shape)) for name, shape in shapes.items()}


@cache
def flow_state() -> dict[str, torch.Tensor]:
    """The state dict that the golden data were made with."""
    return generated(flow_shapes(flow_config()))


@cache
def flow_noise() -> torch.Tensor:
    """[80, 30000]: upstream's `decoder.rand_noise`."""
    return normal("decoder.rand_noise", (1, 80, 30_000))[0]


@dataclass(frozen=True, slots=True)
class GoldenFlow:
    """The golden flow behind its runner, and what the runner does not give away."""

    model: StepAudio2Flow
    memory: FlowMemory
    runner: StepAudio2FlowRunner

    def render(self, streams: Sequence[ChunkStream]) -> list[torch.Tensor]:
        """The next chunk of each, together."""
        batch = self.runner.begin(streams)
        while not batch.advance():
            pass
        return batch.result()


@cache
def flow_model(device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> StepAudio2Flow:
    return StepAudio2Flow(flow_config(), flow_state(), device=device, dtype=dtype, noise=flow_noise())


def golden_flow(
    chunk_tokens: tuple[int, ...] = CHUNK_TOKENS,
    *,
    context: ContextRule = whole_context,
    num_blocks: int = 120,
    max_streams: int = 8,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    buckets: BucketConfig | None = None,
    device: torch.device = CPU,
    make_step: Callable[[StepAudio2Flow, FlowMemory], EulerStep] | None = None,
) -> GoldenFlow:
    """Free blocks are full of NaN: whoever reads one shows it. `make_step`: of what is in buckets."""
    model = flow_model(device, dtype)
    memory = FlowMemory(
        model.config, num_blocks=num_blocks, device=model.device, dtype=dtype, kv_dtype=kv_dtype, poison=True
    )
    plain = TorchSolver(model, memory, max_batches=max_streams)
    step = make_step(model, memory) if make_step is not None else None
    solver = plain if buckets is None else BucketSolver(model, memory, buckets, step=step)
    runner = StepAudio2FlowRunner(
        model,
        memory,
        solver,
        max_streams=max_streams,
        rules=StreamRules(ChunkSchedule(chunk_tokens), context),
    )
    return GoldenFlow(model, memory, runner)


def golden_prompt(arrays: Mapping[str, torch.Tensor]) -> FlowPrompt:
    """As upstream cuts it: no more frames than the tokens have, no more tokens than the frames."""
    num_tokens = min(len(arrays["prompt_tokens"]), arrays["prompt_mel"].shape[1] // units.FRAMES_PER_TOKEN)
    return FlowPrompt(
        arrays["prompt_tokens"][:num_tokens],
        arrays["prompt_mel"][0, : num_tokens * units.FRAMES_PER_TOKEN],
        arrays["spk"][0],
    )


@cache
def vocoder_state() -> dict[str, torch.Tensor]:
    """The state dict that the golden data were made with."""
    return generated(vocoder_shapes(golden_vocoder_config()))


def source_noise(tag: str, num_rows: int, num_frames: int) -> torch.Tensor:
    """[B, 480 T, 9]: upstream's draws in one call of the vocoder."""
    return normal(f"noise:{tag}:0", (num_rows, num_frames * units.SAMPLES_PER_FRAME, 9))


def golden_vocoder(
    *,
    max_frames: int = 400,
    noise: torch.Tensor | None = None,
    max_streams: int = 4,
    calls: CallConfig | None = None,
    device: torch.device = CPU,
    make_decode: Callable[[StepAudio2Vocoder, CallConfig], Decode] | None = None,
) -> VocoderRunner:
    """`noise` [480 * max_frames, 9]. `make_decode`: of what is in `calls`."""
    model = StepAudio2Vocoder(
        golden_vocoder_config(),
        vocoder_state(),
        max_samples=max_frames * units.SAMPLES_PER_FRAME,
        device=device,
        noise=noise,
    )
    caller: Caller = TorchCaller(model)
    if calls is not None:
        decode = None if make_decode is None else make_decode(model, calls)
        caller = BucketCaller(model, calls, decode=decode)
    renderer = OverlapRenderer(caller, device=device, max_streams=max_streams)
    return VocoderRunner(model, renderer, max_streams=max_streams)
