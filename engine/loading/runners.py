"""Flow and vocoder of an engine on their device: the one place that knows which runner a device gets (the LLM: llm.py).

CUDA's runners need Triton, which CPU installations lack, so they are imported when a GPU is used.
"""

from pathlib import Path
from typing import Any

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import CudaLane
from voicegate.engine.interface import EngineError
from voicegate.engine.loading.devices import DTYPES, KV_DTYPES, PRODUCT_DTYPES, Device, free_gpu_bytes, gpu_of
from voicegate.engine.loading.memory import SPARE_GPU_BYTES, flow_block_bytes
from voicegate.engine.loading.startup import ModelStart
from voicegate.engine.loop.stages import VoiceRoom
from voicegate.engine.model.config import Family, ModelConfig
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.token2wav.flow import chunking
from voicegate.engine.token2wav.flow.backend import FlowBackend
from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.model import FlowModel
from voicegate.engine.token2wav.flow.plain_solver import PlainSolver
from voicegate.engine.token2wav.flow.runner import FlowRunner
from voicegate.engine.token2wav.flow.stream import BlockSolver
from voicegate.engine.token2wav.vocoder.backend import VocoderBackend
from voicegate.engine.token2wav.vocoder.model import VocoderModel
from voicegate.engine.token2wav.vocoder.plain_renderer import PlainRenderer
from voicegate.engine.token2wav.vocoder.runner import Renderer, VocoderRunner
from voicegate.engine.units import SAMPLES_PER_TOKEN


def load_vocoder(config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart) -> VocoderBackend:
    """Raises WeightsError, ValueError."""
    if model.family is not Family.COSYVOICE3:
        raise EngineError(f"{model.name} is a {model.family} model, whose token2wav this version cannot run yet")
    loaded = VocoderModel(
        model.vocoder,
        load_state_dict(config.model_dir / "vocoder.safetensors"),
        max_samples=2 * config.max_clause_tokens * SAMPLES_PER_TOKEN,  # at half speed
        device=device.device,
    )
    lane, max_streams = device.token2wav_lane, config.max_active_clauses
    renderer: Renderer
    if isinstance(lane, CudaLane):
        from voicegate.engine.token2wav.vocoder.cuda.config import VocoderCudaConfig  # noqa: PLC0415 - see above
        from voicegate.engine.token2wav.vocoder.cuda.renderer import CudaRenderer  # noqa: PLC0415

        cuda = VocoderCudaConfig(
            precision=config.vocoder_precision,
            has_graphs=not config.is_eager,
            num_multiprocessors=gpu_of(device.device).num_multiprocessors,
        )
        renderer = CudaRenderer(loaded, cuda, max_streams=max_streams, stream=lane.stream)
    else:
        renderer = PlainRenderer(loaded, max_streams=max_streams)
    start.add("vocoder", renderer.graphs, lane)
    return VocoderRunner(loaded, renderer, max_streams=max_streams)


def load_flow(
    config: EngineConfig, model: ModelConfig, device: Device, *, room: VoiceRoom, start: ModelStart
) -> FlowBackend[Any, Any]:
    """Last of the three: on a GPU its blocks take the memory that is left. Raises WeightsError, ValueError."""
    state_dict = load_state_dict(config.model_dir / "flow.safetensors")
    dtype, kv_dtype = (
        (DTYPES[config.precision], KV_DTYPES[config.kv_dtype]) if device.is_cuda else (torch.float32, torch.float32)
    )
    num_voice_blocks = sum(map(chunking.num_prompt_blocks, room.prompt_tokens))
    blocks_per_clause = chunking.num_speech_blocks(config.max_clause_tokens)
    num_blocks = num_voice_blocks + config.max_active_clauses * blocks_per_clause
    if device.is_cuda:
        weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state_dict.values())
        block_bytes = flow_block_bytes(config, model)
        num_fitting = _num_fitting_blocks(
            device, block_bytes, 2 * weight_bytes, at_least=num_voice_blocks + blocks_per_clause
        )
        num_blocks = min(num_blocks, num_fitting)
        start.progress.line(f"flow: {num_blocks} blocks of {block_bytes >> 20} MiB, a second of context each")
    noise = _stored_noise(config.model_dir)
    loaded = FlowModel(model.cosyvoice3_flow, state_dict, device=device.device, dtype=dtype, noise=noise)
    pool = BlockPool(
        model.cosyvoice3_flow.estimator,
        num_steps=model.cosyvoice3_flow.num_euler_steps,
        num_blocks=num_blocks,
        device=device.device,
        dtype=dtype,
        kv_dtype=kv_dtype,
    )
    solver: BlockSolver
    if device.is_cuda:
        from voicegate.engine.token2wav.flow.cuda.config import FlowCudaConfig  # noqa: PLC0415 - see above
        from voicegate.engine.token2wav.flow.cuda.solver import CudaSolver  # noqa: PLC0415

        cuda = FlowCudaConfig(product_dtype=PRODUCT_DTYPES[config.flow_products], has_graphs=not config.is_eager)
        solver = CudaSolver(loaded, pool, cuda)
    else:
        solver = PlainSolver(loaded, pool, max_streams=config.max_active_clauses)
    start.add("flow", solver.graphs, device.token2wav_lane)
    return FlowRunner(
        loaded,
        pool,
        solver,
        max_streams=config.max_active_clauses,
        first_block_tokens=config.first_block_tokens,
    )


def _num_fitting_blocks(device: Device, block_bytes: int, weight_bytes: int, *, at_least: int) -> int:
    """Raises EngineError for fewer."""
    free_bytes = free_gpu_bytes(device.device)
    num_fitting = (free_bytes - SPARE_GPU_BYTES - weight_bytes) // block_bytes
    if num_fitting < at_least:
        raise EngineError(
            f"{free_bytes >> 20} MiB are free on the GPU: too little for the voices and one clause "
            f"({block_bytes >> 20} MiB a second of context); free memory or use kv_dtype float8"
        )
    return num_fitting


def _stored_noise(model_dir: Path) -> torch.Tensor | None:
    """Converted models bring it, for the CPUs whose torch draws other bits; None: it is drawn here."""
    path = model_dir / "flow_noise.safetensors"
    return load_state_dict(path)["noise"] if path.exists() else None
