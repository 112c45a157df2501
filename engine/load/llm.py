"""The speech LLM of an engine: the backend that the device has, or the user chose.

CUDA's runner needs Triton, which CPU installations lack, and TensorRT-LLM its package: both are imported where chosen.
"""

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.voice_shelf import TEXT_ROOM
from voicegate.engine.device.lanes import CudaLane
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.llm.stepped import SteppedLlm
from voicegate.engine.llm.torch_runner import TorchLlmRunner
from voicegate.engine.load.devices import DTYPES, Device
from voicegate.engine.load.files import load_weights
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import Family, ModelConfig, SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary


def llm_positions(config: EngineConfig, model: ModelConfig, num_prompt_tokens: int) -> int:
    """Of a slot."""
    return min(model.llm.max_positions, config.max_clause_tokens + num_prompt_tokens + TEXT_ROOM)


def load_llm(
    config: EngineConfig, model: ModelConfig, device: Device, *, num_prompt_tokens: int, start: ModelStart
) -> LlmBackend:
    """Raises WeightsError, ValueError, and EngineError for a backend that cannot run here."""
    num_positions = llm_positions(config, model, num_prompt_tokens)
    match config.llm_backend:
        case "tensorrt-llm":
            return _tensorrt_llm(config, model, device, num_positions)
        case "cuda":
            return _cuda_llm(config, model, device, num_positions, start)
        case "auto" if device.is_cuda:
            return _cuda_llm(config, model, device, num_positions, start)
        case _:
            return _torch_llm(config, model, device, num_positions)


def _torch_llm(config: EngineConfig, model: ModelConfig, device: Device, num_positions: int) -> LlmBackend:
    runner = TorchLlmRunner(
        model.llm,
        model.sampling,
        load_weights(config.model_dir, model, "llm"),
        num_slots=config.max_active_clauses,
        max_positions=num_positions,
        device=device.device,
        dtype=DTYPES[config.precision] if device.is_cuda else torch.float32,
    )
    return SteppedLlm(runner, device.llm_lane)


def _cuda_llm(
    config: EngineConfig, model: ModelConfig, device: Device, num_positions: int, start: ModelStart
) -> LlmBackend:
    lane = device.llm_lane
    if not isinstance(lane, CudaLane):
        raise EngineError("--llm-backend cuda needs a GPU; on a CPU use torch, or auto")
    from voicegate.engine.llm.cuda.config import CudaLlmConfig  # noqa: PLC0415 - see the module's docstring
    from voicegate.engine.llm.cuda.runner import CudaLlmRunner  # noqa: PLC0415

    runner = CudaLlmRunner(
        model.llm,
        model.sampling,
        load_weights(config.model_dir, model, "llm"),
        num_slots=config.max_active_clauses,
        max_positions=num_positions,
        device=device.device,
        dtype=DTYPES[config.precision],
        cuda=CudaLlmConfig(has_graphs=not config.is_eager),
        stream=lane.stream,
    )
    start.add("LLM", runner.graphs, lane)
    return SteppedLlm(runner, lane)


def check_tensorrt_llm(config: EngineConfig, model: ModelConfig, device: torch.device) -> tuple[str, MergedVocabulary]:
    """The package's version, and what the checkpoint has; nothing of it is imported.

    Raises EngineError and ValueError that say what does not fit, and what to do.
    """
    from voicegate.engine.backends.tensorrt_llm.checkpoint import read_vocabulary  # noqa: PLC0415 - see the module's docstring
    from voicegate.engine.backends.tensorrt_llm.requirements import check_requirements  # noqa: PLC0415

    _repetition_aware(model)
    if device.index:
        raise EngineError(
            f"TensorRT-LLM runs on the first GPU, not on {device}: use llm_device cuda:0 "
            "(CUDA_VISIBLE_DEVICES says which GPU that is)"
        )
    version = check_requirements(device)
    if config.merged_hf_dir is None:
        raise EngineError(
            "--llm-backend tensorrt-llm needs --merged-hf-dir DIR, "
            "which `voicegate convert SRC DST --merged-hf DIR` writes"
        )
    if config.precision != "bfloat16":
        raise EngineError(f"the merged checkpoint is bfloat16: precision {config.precision} needs another LLM backend")
    return version, read_vocabulary(config.merged_hf_dir, model.llm)


def _tensorrt_llm(config: EngineConfig, model: ModelConfig, device: Device, num_positions: int) -> LlmBackend:
    from voicegate.engine.backends.tensorrt_llm.backend import TensorrtLlm  # noqa: PLC0415 - as above
    from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig  # noqa: PLC0415
    from voicegate.engine.backends.tensorrt_llm.library import open_library  # noqa: PLC0415

    sampling = _repetition_aware(model)
    _, vocabulary = check_tensorrt_llm(config, model, device.device)
    assert config.merged_hf_dir is not None
    settings = TensorrtLlmConfig(
        config.merged_hf_dir,
        num_slots=config.max_active_clauses,
        max_positions=num_positions,
        is_eager=config.is_eager,
        has_worker_process=config.tensorrt_llm_worker,
        is_repetition_aware=config.tensorrt_llm_sampling == "repetition-aware",
        stream_interval=config.tensorrt_llm_stream_interval,
        has_overlap=config.tensorrt_llm_overlap,
        has_reuse=config.tensorrt_llm_reuse,
    )
    library = open_library(settings, model.llm, sampling, vocabulary)
    return TensorrtLlm(model.llm, vocabulary, library, settings)


def _repetition_aware(model: ModelConfig) -> SamplingConfig:
    """What alone the merged checkpoint's backend knows of. Raises EngineError."""
    if model.family is not Family.COSYVOICE3 or not isinstance(model.sampling, SamplingConfig):
        raise EngineError(
            "--llm-backend tensorrt-llm serves CosyVoice3 with its own sampling alone; "
            f"{model.name} is a {model.family} model, or sampled in another way: use another backend"
        )
    return model.sampling
