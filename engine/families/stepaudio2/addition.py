"""The second family's answers to the core: its tensors, its needs, and its flow and vocoder on their device.

On a GPU these run in fixed shapes and graphs, by our own kernels. What makes these is imported when a GPU is used.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.families.stepaudio2.config import StepAudio2FlowConfig
from voicegate.engine.families.stepaudio2.flow import memory
from voicegate.engine.families.stepaudio2.flow.chunking import (
    CHUNK_TOKENS,
    ChunkSchedule,
    trimmed_context,
    whole_context,
)
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.runner import StepAudio2FlowRunner
from voicegate.engine.families.stepaudio2.flow.stream import ContextRule, Solver, StreamRules
from voicegate.engine.families.stepaudio2.flow.torch_solver import TorchSolver
from voicegate.engine.families.stepaudio2.flow.weights import check_flow, flow_shapes
from voicegate.engine.families.stepaudio2.vocoder.calls import Caller, TorchCaller
from voicegate.engine.families.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.families.stepaudio2.vocoder.renderer import OverlapRenderer
from voicegate.engine.families.stepaudio2.vocoder.weights import check_vocoder, vocoder_shapes
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import Device, flow_dtypes, gpu_of
from voicegate.engine.load.seams import Family, State, Token2wavNeeds
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import Shape, load_checked, num_weights, stored_noise
from voicegate.engine.units import SAMPLES_PER_TOKEN
from voicegate.engine.vocoder.runner import VocoderRunner

# Memory that the largest batches take on the way (32 rows of 52 tokens after 2048 frames: 1.3 GB; 32 rows of 112
# frames: 1.5 GB), once where they are compiled and once where captured. By arithmetic, not measured; at 512 channels.
_WORKING_BYTES: Final = 6 << 30
_DIM: Final = 512

_CONTEXTS: Final[dict[str, ContextRule]] = {"whole": whole_context, "trimmed": trimmed_context}


class StepAudio2:
    """Implements Family."""

    def shapes(self, part: str, model: ModelConfig) -> dict[str, Shape]:
        return flow_shapes(_flow_of(model)) if part == "flow" else vocoder_shapes(model.vocoder)

    def optional_shapes(self, part: str, model: ModelConfig) -> dict[str, Shape]:
        return {}

    def check(self, part: str, model: ModelConfig, state: State) -> None:
        if part == "flow":
            check_flow(_flow_of(model), state)
        else:
            check_vocoder(model.vocoder, state)

    def needs(
        self, model: ModelConfig, *, dtype: torch.dtype, kv_dtype: torch.dtype, num_layouts: int
    ) -> Token2wavNeeds:
        flow = _flow_of(model)
        return Token2wavNeeds(
            num_flow_weights=num_weights(flow_shapes(flow)),
            num_vocoder_weights=num_weights(vocoder_shapes(model.vocoder)),
            working_bytes=_WORKING_BYTES * flow.encoder.dim // _DIM,
            block_frames=memory.FRAMES_PER_BLOCK,
            block_bytes=memory.bytes_per_block(flow, dtype=dtype, kv_dtype=kv_dtype),
            num_blocks=memory.num_token_blocks,
            num_speech_blocks=memory.num_token_blocks,
        )

    def load_vocoder(
        self, config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart
    ) -> VocoderRunner:
        if device.is_cuda and config.vocoder_precision == "float32":
            torch.backends.cudnn.allow_tf32 = False  # torch's default; nothing else here asks cuDNN for anything
        loaded = StepAudio2Vocoder(
            model.vocoder,
            load_checked(config.model_dir / "vocoder.safetensors", partial(check_vocoder, model.vocoder)),
            max_samples=2 * config.max_clause_tokens * SAMPLES_PER_TOKEN,  # at half speed
            device=device.device,
        )
        caller, name = _caller(config, loaded, device)
        start.add("vocoder", caller.graphs, device.token2wav_lane)
        max_streams = config.max_active_clauses
        renderer = OverlapRenderer(caller, device=device.device, max_streams=max_streams, name=name)
        return VocoderRunner(loaded, renderer, max_streams=max_streams)

    def load_flow(
        self,
        config: EngineConfig,
        model: ModelConfig,
        device: Device,
        *,
        num_blocks: Callable[[], int],
        start: ModelStart,
    ) -> StepAudio2FlowRunner:
        if config.flow_products != "precision":
            raise EngineError(f"flow_products {config.flow_products} is not for {model.family} models")
        flow, (dtype, kv_dtype) = _flow_of(model), flow_dtypes(config, device)
        schedule = _schedule(config, flow)
        rules = StreamRules(schedule, _CONTEXTS[config.flow_context])
        num = num_blocks()
        loaded = StepAudio2Flow(
            flow,
            load_checked(config.model_dir / "flow.safetensors", partial(check_flow, flow)),
            device=device.device,
            dtype=dtype,
            noise=stored_noise(config.model_dir),
        )
        kept = FlowMemory(flow, num_blocks=num, device=device.device, dtype=dtype, kv_dtype=kv_dtype)
        solver: Solver
        if device.is_cuda:
            from voicegate.engine.families.stepaudio2.flow.bucket_solver import (  # noqa: PLC0415 - see above
                BucketConfig,
                BucketSolver,
            )
            from voicegate.engine.families.stepaudio2.flow.cuda.step import FusedStep  # noqa: PLC0415

            token_buckets = schedule.longest_chunks(lookahead=flow.lookahead_tokens)
            buckets = BucketConfig(token_buckets, has_graphs=not config.is_eager)
            solver = BucketSolver(loaded, kept, buckets, step=FusedStep(loaded, kept))
        else:
            solver = TorchSolver(loaded, kept, max_batches=config.max_active_clauses)
        start.add("flow", solver.graphs, device.token2wav_lane)
        return StepAudio2FlowRunner(loaded, kept, solver, max_streams=config.max_active_clauses, rules=rules)


ADDITION: Final[Family] = StepAudio2()


def _flow_of(model: ModelConfig) -> StepAudio2FlowConfig:
    assert isinstance(model.flow, StepAudio2FlowConfig)
    return model.flow


def _caller(config: EngineConfig, loaded: StepAudio2Vocoder, device: Device) -> tuple[Caller, str]:
    """And what it computes with: in half precision our kernels, else cuDNN's convolutions."""
    if not device.is_cuda:
        return TorchCaller(loaded), "torch"
    from voicegate.engine.families.stepaudio2.vocoder.bucket_caller import (  # noqa: PLC0415 - see above
        KERNEL_ROW_BUCKETS,
        BucketCaller,
        CallConfig,
    )

    if config.vocoder_precision in ("tf32", "float32"):
        return BucketCaller(loaded, CallConfig(has_graphs=not config.is_eager)), "torch"
    from voicegate.engine.families.stepaudio2.vocoder.cuda.kernel_decoder import kernel_decoder  # noqa: PLC0415

    calls = CallConfig(row_buckets=KERNEL_ROW_BUCKETS, has_graphs=not config.is_eager)
    num_multiprocessors = gpu_of(device.device).num_multiprocessors
    decode = kernel_decoder(loaded, calls, config.vocoder_precision, num_multiprocessors=num_multiprocessors)
    return BucketCaller(loaded, calls, decode=decode), "cuda"


def _schedule(config: EngineConfig, flow: StepAudio2FlowConfig) -> ChunkSchedule:
    """Raises EngineError for an LLM that is held too short for the longest chunk."""
    schedule = ChunkSchedule((config.first_block_tokens, *CHUNK_TOKENS[1:]))
    longest = max(schedule.sizes) + flow.lookahead_tokens
    if config.llm_ahead_tokens < longest:
        raise EngineError(
            f"llm_ahead_tokens is {config.llm_ahead_tokens}; this family's chunks need {longest} tokens to be ready"
        )
    return schedule
