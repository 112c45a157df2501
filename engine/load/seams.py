"""The core's questions to an addition, by kind (engine/additions.py). The core's own family implements Family, too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from voicegate.engine.audio.outlet import Sink
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.device.watcher import Waker
from voicegate.engine.flow.backend import FlowBackend
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import Progress
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import Shape
from voicegate.engine.thread.worker import LoadedEngine
from voicegate.engine.units import FRAME_RATE_HZ
from voicegate.engine.vocoder.backend import VocoderBackend
from voicegate.engine.vocoder.model import VocoderModel

if TYPE_CHECKING:  # of these all but the last need Triton, which CPU installations lack
    from voicegate.engine.flow.cuda.config import FlowCudaConfig
    from voicegate.engine.flow.cuda.estimator import StepEngines
    from voicegate.engine.load.memory import GpuMemory
    from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
    from voicegate.engine.vocoder.cuda.renderer import CudaRenderer

State = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Token2wavNeeds:
    """Memory that a family's flow and vocoder take, whatever they run on."""

    num_flow_weights: int
    num_vocoder_weights: int
    working_bytes: int  # on a GPU, beyond what memory.SPARE_GPU_BYTES has room for
    block_frames: int  # of the flow's memory
    block_bytes: int
    num_blocks: Callable[[int], int]  # of a prompt with so many tokens
    num_speech_blocks: Callable[[int], int]  # of so much speech

    @property
    def bytes_per_second(self) -> int:
        """Seconds of context."""
        return self.block_bytes * FRAME_RATE_HZ // self.block_frames


class Family(Protocol):
    """Flow and vocoder of a family of models. Their `part` is flow or vocoder; the speech LLM is alike in all."""

    def shapes(self, part: str, model: ModelConfig) -> dict[str, Shape]:
        """Every tensor that the engine reads."""

    def optional_shapes(self, part: str, model: ModelConfig) -> dict[str, Shape]:
        """Tensors that upstream's files hold besides."""

    def check(self, part: str, model: ModelConfig, state: State) -> None:
        """Raises ValueError listing all faults."""

    def needs(
        self, model: ModelConfig, *, dtype: torch.dtype, kv_dtype: torch.dtype, num_layouts: int
    ) -> Token2wavNeeds:
        """`num_layouts`: of a prompt, see chunking.FirstBlocks."""

    def load_vocoder(
        self, config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart
    ) -> VocoderBackend:
        """Raises WeightsError, ValueError, and EngineError for a backend that cannot be had here."""

    def load_flow(
        self,
        config: EngineConfig,
        model: ModelConfig,
        device: Device,
        *,
        num_blocks: Callable[[], int],
        start: ModelStart,
    ) -> FlowBackend[Any, Any]:
        """`num_blocks`: asked for when all else has taken its memory. Raises as `load_vocoder`."""


class LlmAddition(Protocol):
    """Another way to run the speech LLM (`llm_backend`)."""

    def check(self, config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
        """Names what would run, in a few words, without importing it. Raises EngineError, ValueError with the
        remedy."""

    def load(self, config: EngineConfig, model: ModelConfig, device: Device, *, num_positions: int) -> LlmBackend:
        """`num_positions`: of a sequence, its prompt included. Raises as `check`."""


class Token2wavAddition(Protocol):
    """Another way to compute CosyVoice3's vocoder and flow on a GPU (`vocoder_backend`, `flow_backend`).

    Where it is named and cannot be had, that is an EngineError. With `auto` None means our kernels: it is not there, or
    it was measured and is slower.
    """

    def renderer(
        self,
        config: EngineConfig,
        model: ModelConfig,
        loaded: VocoderModel,
        device: Device,
        cuda: "VocoderCudaConfig",
        progress: Progress,
    ) -> "CudaRenderer | None": ...

    def step_engines(
        self, config: EngineConfig, model: ModelConfig, device: Device, cuda: "FlowCudaConfig", progress: Progress
    ) -> "StepEngines | None":
        """Before the flow's blocks take the memory that is left."""

    def gpu_bytes(self, config: EngineConfig, model: ModelConfig) -> int:
        """Memory that it takes of a GPU where it is named."""

    def usable(self, part: str, config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
        """Names what would run, in a few words. Raises EngineError that says why it cannot be used."""


class Layout(Protocol):
    """Another place for the models than one device: `llm_device` asks for it.

    Its module `config` has `check`, without torch: it raises ValueError for settings that do not go together.
    """

    def resolved(self, config: EngineConfig) -> EngineConfig:
        """As devices.resolved_for_device."""

    def limited(self, config: EngineConfig, resolved: EngineConfig) -> EngineConfig:
        """`resolved` for one of its GPUs, as the others allow. Raises EngineError where `config` asks for more."""

    def gpu_memories(self, config: EngineConfig, model: ModelConfig, room: VoiceRoom) -> "Mapping[str, GpuMemory]":
        """See memory.gpu_memories."""

    def load_engine(self, config: EngineConfig, sink: Sink, waker: Waker, progress: Progress) -> LoadedEngine:
        """As build.load_engine; `config` is resolved."""
