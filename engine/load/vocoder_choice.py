"""What runs CosyVoice3's vocoder: torch's operations on a CPU; our kernels or TensorRT on a GPU, as the user chose.

`auto` takes TensorRT where its engines lie beside the model and were the quicker ones, measured here and now. What is
named and cannot be had is an error; what `auto` does not take, it says.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
import torch

from voicegate.engine.backends.tensorrt.vocoder.filter import TensorrtFilter
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import CudaLane
from voicegate.engine.load.backend_choice import (
    CUDA,
    TENSORRT,
    UNMEASURABLE,
    UNUSABLE,
    give_back,
    reason_of,
    refused,
)
from voicegate.engine.load.devices import Device, gpu_of
from voicegate.engine.load.progress import Progress
from voicegate.engine.load.vocoder_engines import Bucket, vocoder_engines
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer
from voicegate.engine.vocoder.cuda.trial import call_ms
from voicegate.engine.vocoder.model import VocoderModel

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class VocoderParts:
    """What every way of running it is made of."""

    config: EngineConfig
    model: ModelConfig
    loaded: VocoderModel
    device: Device
    cuda: VocoderCudaConfig

    def kernels(self) -> CudaRenderer:
        return CudaRenderer(self.loaded, self.cuda, max_streams=self._max_streams, stream=self._stream)

    def engines(self) -> CudaRenderer:
        """Raises TensorrtError, EngineFilesError, OSError."""
        device = self.device.device
        wanted = vocoder_engines(self.config, self.model, self.cuda)
        engines = wanted.find(self.config, device).load(device)
        filter_of = partial(TensorrtFilter, self.model.vocoder, engines, max_streams=self._max_streams)
        return CudaRenderer(
            self.loaded,
            self.cuda,
            max_streams=self._max_streams,
            stream=self._stream,
            filter_of=filter_of,
            name=TENSORRT,
        )

    @property
    def _max_streams(self) -> int:
        return self.config.max_active_clauses

    @property
    def _stream(self) -> torch.cuda.Stream | None:
        lane = self.device.token2wav_lane
        return lane.stream if isinstance(lane, CudaLane) else None


def gpu_renderer(
    config: EngineConfig, model: ModelConfig, loaded: VocoderModel, device: Device, progress: Progress
) -> CudaRenderer:
    """Raises EngineError for a backend that was named and cannot be had; WeightsError."""
    cuda = VocoderCudaConfig(
        precision=config.vocoder_precision,
        has_graphs=not config.is_eager,
        num_multiprocessors=gpu_of(device.device).num_multiprocessors,
    )
    return choose(VocoderParts(config, model, loaded, device, cuda), progress)


def choose(parts: VocoderParts, progress: Progress) -> CudaRenderer:
    """As `gpu_renderer`."""
    match parts.config.vocoder_backend:
        case "cuda":
            return parts.kernels()
        case "tensorrt":
            try:
                return parts.engines()
            except UNUSABLE as error:
                raise refused("vocoder", error) from error
        case _:
            files = vocoder_engines(parts.config, parts.model, parts.cuda).files(parts.config)
            return _quicker(parts, progress) if files.are_there() else parts.kernels()


def _quicker(parts: VocoderParts, progress: Progress) -> CudaRenderer:
    try:
        renderers, measured = _measured(parts, progress)
    except UNMEASURABLE as error:
        reason = reason_of(error)
    else:
        chosen = quicker_of(measured)
        ratio = mean_ratio(measured[TENSORRT], measured[CUDA])
        log.info("vocoder_chosen", vocoder=chosen, tensorrt_to_cuda=round(ratio, 3))
        progress.line(f"vocoder: {chosen}; TensorRT's calls take {ratio:.2f} times ours")
        kept = renderers[chosen]
        renderers.clear()
        give_back()
        return kept
    give_back()
    log.warning("vocoder_engines_unused", reason=reason, vocoder=CUDA)
    progress.line(f"vocoder: TensorRT's engines are not used: {reason}")
    return parts.kernels()


def _measured(parts: VocoderParts, progress: Progress) -> tuple[dict[str, CudaRenderer], dict[str, list[float]]]:
    """Both, and how long each of `measured_buckets` takes them. Raises what either does."""
    renderers, measured = {TENSORRT: parts.engines()}, {}
    buckets = measured_buckets(parts.cuda)
    progress.line("vocoder: TensorRT and our kernels are measured")
    measured[TENSORRT] = call_ms(renderers[TENSORRT], buckets)
    renderers[CUDA] = parts.kernels()
    measured[CUDA] = call_ms(renderers[CUDA], buckets)
    for number, (streams, frames) in enumerate(buckets):
        shown = {f"{name}_ms": round(times[number], 3) for name, times in measured.items()}
        log.info("vocoder_measured", streams=streams, frames=frames, **shown)
    return renderers, measured


def measured_buckets(cuda: VocoderCudaConfig) -> list[Bucket]:
    """One stream, some and many; a first block and a later one."""
    batches, frames = cuda.batch_buckets, cuda.frame_buckets
    rows = sorted({batches[0], batches[len(batches) // 2], batches[-1]})
    return [(each, length) for each in rows for length in sorted({frames[len(frames) // 3], frames[-1]})]


def mean_ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Geometric: a lone stream's call counts as much as a crowd's."""
    return math.exp(sum(math.log(one / other) for one, other in zip(theirs, ours, strict=True)) / len(ours))


def quicker_of(measured: Mapping[str, Sequence[float]]) -> str:
    return TENSORRT if mean_ratio(measured[TENSORRT], measured[CUDA]) < 1 else CUDA
