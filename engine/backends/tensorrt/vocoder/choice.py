"""Choice of CosyVoice3's vocoder on a GPU: our kernels or TensorRT, measured as whole renderers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
import torch

from voicegate.engine.backends.tensorrt.choice import TENSORRT, choose, give_back
from voicegate.engine.backends.tensorrt.vocoder.filter import TensorrtFilter
from voicegate.engine.backends.tensorrt.vocoder.trial import call_ms
from voicegate.engine.backends.tensorrt.wanted import Bucket, vocoder_engines
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import CudaLane
from voicegate.engine.load.cosyvoice3 import KERNELS
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import Progress
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer
from voicegate.engine.vocoder.model import VocoderModel

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class VocoderParts:
    """Parts that every way of running it is made of."""

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


def choose_renderer(parts: VocoderParts, progress: Progress) -> CudaRenderer | None:
    """See choice.choose."""
    is_built = vocoder_engines(parts.config, parts.model, parts.cuda).files(parts.config).are_there()
    return choose(
        "vocoder",
        parts.config.vocoder_backend,
        progress,
        is_built=is_built,
        named=parts.engines,
        quicker=partial(_quicker, parts, progress),
    )


def _quicker(parts: VocoderParts, progress: Progress) -> CudaRenderer:
    """Ours where it is quicker: it was made to be measured."""
    renderers, measured = _measured(parts, progress)
    chosen = quicker_of(measured)
    ratio = mean_ratio(measured[TENSORRT], measured[KERNELS])
    log.info("vocoder_chosen", vocoder=chosen, tensorrt_to_cuda=round(ratio, 3))
    progress.line(f"vocoder: {chosen}; TensorRT's calls take {ratio:.2f} times ours")
    kept = renderers[chosen]
    renderers.clear()
    give_back()
    return kept


def _measured(parts: VocoderParts, progress: Progress) -> tuple[dict[str, CudaRenderer], dict[str, list[float]]]:
    """Both, and how long each of `measured_buckets` takes them. Raises what either does."""
    renderers, measured = {TENSORRT: parts.engines()}, {}
    buckets = measured_buckets(parts.cuda)
    progress.line("vocoder: TensorRT and our kernels are measured")
    measured[TENSORRT] = call_ms(renderers[TENSORRT], buckets)
    renderers[KERNELS] = parts.kernels()
    measured[KERNELS] = call_ms(renderers[KERNELS], buckets)
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
    """Geometric: a single stream's call counts as much as a crowd's."""
    return math.exp(sum(math.log(one / other) for one, other in zip(theirs, ours, strict=True)) / len(ours))


def quicker_of(measured: Mapping[str, Sequence[float]]) -> str:
    return TENSORRT if mean_ratio(measured[TENSORRT], measured[KERNELS]) < 1 else KERNELS
