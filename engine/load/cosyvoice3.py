"""CosyVoice3's flow and vocoder on their device: the one place that knows which solver and renderer a device gets.

CUDA's need Triton, which CPU installations lack, so they are imported when a GPU is used.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import torch

from voicegate.engine import additions
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import CudaLane
from voicegate.engine.flow import chunking
from voicegate.engine.flow.block_pool import BlockPool, bytes_per_block
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockSolver
from voicegate.engine.flow.torch.solver import TorchSolver
from voicegate.engine.flow.weights import ESTIMATOR_PREFIX, INV_FREQ, check_flow, flow_shapes
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import PRODUCT_DTYPES, Device, flow_dtypes, gpu_of
from voicegate.engine.load.progress import Progress
from voicegate.engine.load.seams import State, Token2wavAddition, Token2wavNeeds
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import Shape, load_checked, num_weights, stored_noise
from voicegate.engine.units import SAMPLES_PER_TOKEN
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import Renderer, VocoderRunner
from voicegate.engine.vocoder.torch.renderer import TorchRenderer
from voicegate.engine.vocoder.weights import check_vocoder, vocoder_shapes

KERNELS: Final = "cuda"  # a backend's name: ours


class CosyVoice3:
    """Implements Family."""

    def shapes(self, part: str, model: ModelConfig) -> dict[str, Shape]:
        return flow_shapes(model.cosyvoice3_flow) if part == "flow" else vocoder_shapes(model.vocoder)

    def optional_shapes(self, part: str, model: ModelConfig) -> dict[str, Shape]:
        if part != "flow":
            return {}
        return {ESTIMATOR_PREFIX + INV_FREQ: (model.cosyvoice3_flow.estimator.head_dim // 2,)}

    def check(self, part: str, model: ModelConfig, state: State) -> None:
        if part == "flow":
            check_flow(model.cosyvoice3_flow, state)
        else:
            check_vocoder(model.vocoder, state)

    def needs(
        self, model: ModelConfig, *, dtype: torch.dtype, kv_dtype: torch.dtype, num_layouts: int
    ) -> Token2wavNeeds:
        flow = model.cosyvoice3_flow
        return Token2wavNeeds(
            num_flow_weights=num_weights(flow_shapes(flow)),
            num_vocoder_weights=num_weights(vocoder_shapes(model.vocoder)),
            working_bytes=0,
            block_frames=chunking.FRAMES_PER_BLOCK,
            block_bytes=bytes_per_block(flow.estimator, num_steps=flow.num_euler_steps, dtype=dtype, kv_dtype=kv_dtype),
            num_blocks=partial(chunking.num_prompt_blocks, num_layouts=num_layouts),
            num_speech_blocks=chunking.num_speech_blocks,
        )

    def load_vocoder(
        self, config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart
    ) -> VocoderRunner:
        loaded = VocoderModel(
            model.vocoder,
            load_checked(config.model_dir / "vocoder.safetensors", partial(check_vocoder, model.vocoder)),
            max_samples=2 * config.max_clause_tokens * SAMPLES_PER_TOKEN,  # at half speed
            device=device.device,
        )
        max_streams = config.max_active_clauses
        renderer: Renderer
        if device.is_cuda:
            renderer = _gpu_renderer(config, model, loaded, device, start.progress)
        else:
            renderer = TorchRenderer(loaded, max_streams=max_streams)
        start.add("vocoder", renderer.graphs, device.token2wav_lane)
        return VocoderRunner(loaded, renderer, max_streams=max_streams)

    def load_flow(
        self,
        config: EngineConfig,
        model: ModelConfig,
        device: Device,
        *,
        num_blocks: Callable[[], int],
        start: ModelStart,
    ) -> FlowRunner:
        if config.flow_context != "whole":
            raise EngineError(
                f"flow_context {config.flow_context} is not for {model.family} models: nothing is trimmed there"
            )
        flow, (dtype, kv_dtype) = model.cosyvoice3_flow, flow_dtypes(config, device)
        solver_of: Callable[[FlowModel, BlockPool], BlockSolver] = partial(
            TorchSolver, max_streams=config.max_active_clauses
        )
        if device.is_cuda:
            solver_of = _gpu_solver(config, model, device, start.progress)  # its engines take their memory first
        num = num_blocks()
        loaded = load_flow_model(config.model_dir, model, device.device, dtype=dtype)
        pool = BlockPool(
            flow.estimator,
            num_steps=flow.num_euler_steps,
            num_blocks=num,
            device=device.device,
            dtype=dtype,
            kv_dtype=kv_dtype,
        )
        solver = solver_of(loaded, pool)
        start.add("flow", solver.graphs, device.token2wav_lane)
        return FlowRunner(
            loaded, pool, solver, max_streams=config.max_active_clauses, first_blocks=first_blocks(config)
        )


def load_flow_model(model_dir: Path, model: ModelConfig, device: torch.device, *, dtype: torch.dtype) -> FlowModel:
    """Raises WeightsError, OSError."""
    flow = model.cosyvoice3_flow
    state = load_checked(model_dir / "flow.safetensors", partial(check_flow, flow))
    return FlowModel(flow, state, device=device, dtype=dtype, noise=stored_noise(model_dir))


def first_blocks(config: EngineConfig) -> chunking.FirstBlocks:
    """`config` is resolved."""
    return chunking.FirstBlocks(usual=config.first_block_tokens, short=config.whole_first_block_tokens)


def token2wav_addition(backend: str) -> Token2wavAddition | None:
    """The addition that may compute in our kernels' place: the named one, or with auto the installed one.

    Raises EngineError for one that is named and missing.
    """
    if backend == KERNELS:
        return None
    installed = filter(additions.is_installed, additions.names("token2wav"))
    name = next(installed, None) if backend == "auto" else backend
    if name is None:
        return None
    try:
        found: Token2wavAddition = additions.load(name, "addition").ADDITION
    except additions.MissingAddition as error:
        raise EngineError(str(error)) from error
    return found


def _gpu_renderer(
    config: EngineConfig, model: ModelConfig, loaded: VocoderModel, device: Device, progress: Progress
) -> Renderer:
    """Raises EngineError for a backend that was named and cannot be had."""
    from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig  # noqa: PLC0415 - see the module's docstring
    from voicegate.engine.vocoder.cuda.renderer import CudaRenderer  # noqa: PLC0415

    cuda = VocoderCudaConfig(
        precision=config.vocoder_precision,
        has_graphs=not config.is_eager,
        num_multiprocessors=gpu_of(device.device).num_multiprocessors,
    )
    addition = token2wav_addition(config.vocoder_backend)
    found = None if addition is None else addition.renderer(config, model, loaded, device, cuda, progress)
    if found is not None:
        return found
    lane = device.token2wav_lane
    stream = lane.stream if isinstance(lane, CudaLane) else None
    return CudaRenderer(loaded, cuda, max_streams=config.max_active_clauses, stream=stream)


def _gpu_solver(
    config: EngineConfig, model: ModelConfig, device: Device, progress: Progress
) -> Callable[[FlowModel, BlockPool], BlockSolver]:
    """Raises as `_gpu_renderer`."""
    from voicegate.engine.flow.cuda.config import FlowCudaConfig  # noqa: PLC0415 - see the module's docstring
    from voicegate.engine.flow.cuda.solver import CudaSolver  # noqa: PLC0415

    cuda = FlowCudaConfig(product_dtype=PRODUCT_DTYPES[config.flow_products], has_graphs=not config.is_eager)
    addition = token2wav_addition(config.flow_backend)
    engines = None if addition is None else addition.step_engines(config, model, device, cuda, progress)
    return partial(CudaSolver, config=cuda, engines=engines)
