"""Step-Audio2's flow and vocoder on their device: on a GPU in fixed shapes and graphs, by our own kernels.

What makes these is imported when a GPU is used.
"""

from typing import Final

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.families.stepaudio2.flow.chunking import (
    CHUNK_TOKENS,
    ChunkSchedule,
    trimmed_context,
    whole_context,
)
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.plain_solver import PlainSolver
from voicegate.engine.families.stepaudio2.flow.runner import StepAudio2FlowRunner
from voicegate.engine.families.stepaudio2.flow.stream import ContextRule, Solver, StreamRules
from voicegate.engine.families.stepaudio2.vocoder.calls import Caller, PlainCaller
from voicegate.engine.families.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.families.stepaudio2.vocoder.renderer import OverlapRenderer
from voicegate.engine.families.stepaudio2.vocoder.resblocks import Resblock, plain_resblock
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import Device, gpu_of
from voicegate.engine.load.files import load_weights, stored_noise
from voicegate.engine.load.flow_room import flow_dtypes, num_flow_blocks
from voicegate.engine.load.memory import token2wav_needs
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.units import SAMPLES_PER_TOKEN
from voicegate.engine.vocoder.runner import VocoderRunner

_CONTEXTS: Final[dict[str, ContextRule]] = {"whole": whole_context, "trimmed": trimmed_context}


def load_stepaudio2_vocoder(
    config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart
) -> VocoderRunner:
    """Raises WeightsError, ValueError."""
    resblock: Resblock = plain_resblock
    if device.is_cuda:
        from voicegate.engine.families.stepaudio2.vocoder.cuda.fused_resblock import (  # noqa: PLC0415 - see above
            fused_resblock as resblock,
        )

        if config.vocoder_precision == "float32":
            torch.backends.cudnn.allow_tf32 = False  # torch's default; nothing else here asks cuDNN for anything
    loaded = StepAudio2Vocoder(
        model.vocoder,
        load_weights(config.model_dir, model, "vocoder"),
        max_samples=2 * config.max_clause_tokens * SAMPLES_PER_TOKEN,  # at half speed
        device=device.device,
        resblock=resblock,
    )
    caller, name = _caller(config, loaded, device)
    start.add("vocoder", caller.graphs, device.token2wav_lane)
    max_streams = config.max_active_clauses
    renderer = OverlapRenderer(caller, device=device.device, max_streams=max_streams, name=name)
    return VocoderRunner(loaded, renderer, max_streams=max_streams)


def _caller(config: EngineConfig, loaded: StepAudio2Vocoder, device: Device) -> tuple[Caller, str]:
    """And what it computes with: in half precision our kernels, else cuDNN's convolutions."""
    if not device.is_cuda:
        return PlainCaller(loaded), "torch"
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


def load_stepaudio2_flow(
    config: EngineConfig,
    model: ModelConfig,
    flow: StepAudio2FlowConfig,
    device: Device,
    *,
    room: VoiceRoom,
    start: ModelStart,
) -> StepAudio2FlowRunner:
    """Last of the models: on a GPU its blocks take the memory that is left. Raises WeightsError, ValueError."""
    if config.flow_products != "precision":
        raise EngineError(f"flow_products {config.flow_products} is not for {model.family} models")
    dtype, kv_dtype = flow_dtypes(config, device)
    schedule = _schedule(config, flow)
    rules = StreamRules(schedule, _CONTEXTS[config.flow_context])
    needs = token2wav_needs(model, dtype=dtype, kv_dtype=kv_dtype, num_layouts=1)
    num_blocks = num_flow_blocks(config, needs, device, room=room, start=start)
    loaded = StepAudio2Flow(
        flow,
        load_weights(config.model_dir, model, "flow"),
        device=device.device,
        dtype=dtype,
        noise=stored_noise(config.model_dir),
    )
    memory = FlowMemory(flow, num_blocks=num_blocks, device=device.device, dtype=dtype, kv_dtype=kv_dtype)
    solver: Solver
    if device.is_cuda:
        from voicegate.engine.families.stepaudio2.flow.bucket_solver import (  # noqa: PLC0415 - see above
            BucketConfig,
            BucketSolver,
        )
        from voicegate.engine.families.stepaudio2.flow.cuda.step import FusedStep  # noqa: PLC0415

        token_buckets = schedule.longest_chunks(lookahead=flow.lookahead_tokens)
        buckets = BucketConfig(token_buckets, has_graphs=not config.is_eager)
        solver = BucketSolver(loaded, memory, buckets, step=FusedStep(loaded, memory))
    else:
        solver = PlainSolver(loaded, memory, max_batches=config.max_active_clauses)
    start.add("flow", solver.graphs, device.token2wav_lane)
    return StepAudio2FlowRunner(loaded, memory, solver, max_streams=config.max_active_clauses, rules=rules)


def _schedule(config: EngineConfig, flow: StepAudio2FlowConfig) -> ChunkSchedule:
    """Raises EngineError for an LLM that is held too short for the longest chunk."""
    schedule = ChunkSchedule((config.first_block_tokens, *CHUNK_TOKENS[1:]))
    longest = max(schedule.sizes) + flow.lookahead_tokens
    if config.llm_ahead_tokens < longest:
        raise EngineError(
            f"llm_ahead_tokens is {config.llm_ahead_tokens}; this family's chunks need {longest} tokens to be ready"
        )
    return schedule
