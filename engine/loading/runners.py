"""Flow and vocoder of an engine on their device: the one place that knows which runner a device gets (the LLM: llm.py).

CUDA's runners need Triton, which CPU installations lack, so they are imported when a GPU is used.
"""

from typing import Any, assert_never

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.loading.devices import PRODUCT_DTYPES, Device
from voicegate.engine.loading.flow_room import flow_dtypes, num_flow_blocks, stored_noise
from voicegate.engine.loading.memory import token2wav_needs
from voicegate.engine.loading.startup import ModelStart
from voicegate.engine.loading.stepaudio2 import load_stepaudio2_flow, load_stepaudio2_vocoder
from voicegate.engine.loop.stages import VoiceRoom
from voicegate.engine.model.config import FlowConfig, ModelConfig
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.model.weights import load_state_dict
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
    """Raises WeightsError, ValueError, and EngineError for a backend that cannot be had here."""
    if config.vocoder_backend != "auto" and not device.is_cuda:
        raise EngineError(f"--vocoder-backend {config.vocoder_backend} needs a GPU; on a CPU use auto")
    match model.flow:
        case StepAudio2FlowConfig():
            if config.vocoder_backend != "auto":
                raise EngineError(
                    f"--vocoder-backend {config.vocoder_backend} runs CosyVoice3's vocoder alone; "
                    f"{model.name} is a {model.family} model: use auto"
                )
            return load_stepaudio2_vocoder(config, model, device, start=start)
        case FlowConfig():
            return _load_cosyvoice3_vocoder(config, model, device, start)
        case _:
            assert_never(model.flow)


def _load_cosyvoice3_vocoder(
    config: EngineConfig, model: ModelConfig, device: Device, start: ModelStart
) -> VocoderBackend:
    loaded = VocoderModel(
        model.vocoder,
        load_state_dict(config.model_dir / "vocoder.safetensors"),
        max_samples=2 * config.max_clause_tokens * SAMPLES_PER_TOKEN,  # at half speed
        device=device.device,
    )
    max_streams = config.max_active_clauses
    renderer: Renderer
    if device.is_cuda:
        from voicegate.engine.loading.vocoder_choice import gpu_renderer  # noqa: PLC0415 - see above

        renderer = gpu_renderer(config, model, loaded, device, start.progress)
    else:
        renderer = PlainRenderer(loaded, max_streams=max_streams)
    start.add("vocoder", renderer.graphs, device.token2wav_lane)
    return VocoderRunner(loaded, renderer, max_streams=max_streams)


def load_flow(
    config: EngineConfig, model: ModelConfig, device: Device, *, room: VoiceRoom, start: ModelStart
) -> FlowBackend[Any, Any]:
    """Last of the three: on a GPU its blocks take the memory that is left. Raises WeightsError, ValueError."""
    match model.flow:
        case StepAudio2FlowConfig() as flow:
            return load_stepaudio2_flow(config, model, flow, device, room=room, start=start)
        case FlowConfig() as flow:
            return _load_cosyvoice3_flow(config, model, flow, device, room=room, start=start)
        case _:
            assert_never(model.flow)


def _load_cosyvoice3_flow(
    config: EngineConfig, model: ModelConfig, flow: FlowConfig, device: Device, *, room: VoiceRoom, start: ModelStart
) -> FlowRunner:
    if config.flow_context != "whole":
        raise EngineError(
            f"flow_context {config.flow_context} is not for {model.family} models: nothing is trimmed there"
        )
    dtype, kv_dtype = flow_dtypes(config, device)
    needs = token2wav_needs(model, dtype=dtype, kv_dtype=kv_dtype)
    num_blocks = num_flow_blocks(config, needs, device, room=room, start=start)
    loaded = FlowModel(
        flow,
        load_state_dict(config.model_dir / "flow.safetensors"),
        device=device.device,
        dtype=dtype,
        noise=stored_noise(config.model_dir),
    )
    pool = BlockPool(
        flow.estimator,
        num_steps=flow.num_euler_steps,
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
