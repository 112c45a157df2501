"""Flow and vocoder of an engine on their device: the one place that knows which runner a device gets (the LLM: llm.py).

CUDA's runners need Triton, which CPU installations lack, so they are imported when a GPU is used.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.flow.backend import FlowBackend
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.plain_solver import PlainSolver
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockSolver
from voicegate.engine.interface import EngineError
from voicegate.engine.load.backend_choice import check_backend
from voicegate.engine.load.devices import Device
from voicegate.engine.load.files import load_weights
from voicegate.engine.load.flow_model import load_flow_model
from voicegate.engine.load.flow_room import flow_dtypes, num_flow_blocks
from voicegate.engine.load.memory import first_blocks, token2wav_needs
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.load.stepaudio2 import load_stepaudio2_flow, load_stepaudio2_vocoder
from voicegate.engine.model.config import FlowConfig, ModelConfig
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.units import SAMPLES_PER_TOKEN
from voicegate.engine.vocoder.backend import VocoderBackend
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.plain_renderer import PlainRenderer
from voicegate.engine.vocoder.runner import Renderer, VocoderRunner


def load_vocoder(config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart) -> VocoderBackend:
    """Raises WeightsError, ValueError, and EngineError for a backend that cannot be had here."""
    check_backend("vocoder", config.vocoder_backend, model, device.device)
    match model.flow:
        case StepAudio2FlowConfig():
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
        load_weights(config.model_dir, model, "vocoder"),
        max_samples=2 * config.max_clause_tokens * SAMPLES_PER_TOKEN,  # at half speed
        device=device.device,
    )
    max_streams = config.max_active_clauses
    renderer: Renderer
    if device.is_cuda:
        from voicegate.engine.load.vocoder_choice import gpu_renderer  # noqa: PLC0415 - see above

        renderer = gpu_renderer(config, model, loaded, device, start.progress)
    else:
        renderer = PlainRenderer(loaded, max_streams=max_streams)
    start.add("vocoder", renderer.graphs, device.token2wav_lane)
    return VocoderRunner(loaded, renderer, max_streams=max_streams)


def load_flow(
    config: EngineConfig, model: ModelConfig, device: Device, *, room: VoiceRoom, start: ModelStart
) -> FlowBackend[Any, Any]:
    """Last of the three: on a GPU its blocks take the memory that is left.

    Raises WeightsError, ValueError, and EngineError for a backend that cannot be had here.
    """
    check_backend("flow", config.flow_backend, model, device.device)
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
    blocks = first_blocks(config)
    needs = token2wav_needs(model, dtype=dtype, kv_dtype=kv_dtype, num_layouts=blocks.num_layouts)
    solver_of: Callable[[FlowModel, BlockPool], BlockSolver] = partial(
        PlainSolver, max_streams=config.max_active_clauses
    )
    if device.is_cuda:
        from voicegate.engine.load.flow_choice import gpu_solver  # noqa: PLC0415 - see above

        solver_of = gpu_solver(config, model, device, start.progress)  # its engines take their memory first
    num_blocks = num_flow_blocks(config, needs, device, room=room, start=start)
    loaded = load_flow_model(config.model_dir, model, device.device, dtype=dtype)
    pool = BlockPool(
        flow.estimator,
        num_steps=flow.num_euler_steps,
        num_blocks=num_blocks,
        device=device.device,
        dtype=dtype,
        kv_dtype=kv_dtype,
    )
    solver = solver_of(loaded, pool)
    start.add("flow", solver.graphs, device.token2wav_lane)
    return FlowRunner(
        loaded,
        pool,
        solver,
        max_streams=config.max_active_clauses,
        first_blocks=blocks,
    )
