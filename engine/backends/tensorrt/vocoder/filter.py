"""The filter by TensorRT engines, one for each bucket of the CUDA network. What streams carry is kept here, by slot."""

from collections.abc import Mapping
from typing import Final

import torch

from voicegate.engine.backends.tensorrt.library import BoundEngine, LoadedEngine, TensorrtError, current_stream
from voicegate.engine.backends.tensorrt.shared_tensors import SharedTensors
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.cuda import rows as row_fields
from voicegate.engine.vocoder.cuda.buffers import BufferSpec, Workspace
from voicegate.engine.vocoder.stft import Synthesis

Bucket = tuple[int, int]  # streams, frames

_KEPT: Final = ("state", "edge")  # each comes out as new_...
_IN_WORKSPACE: Final = ("mel", "spectra")


class TensorrtFilter:
    """See NetworkFilter."""

    def __init__(
        self,
        config: VocoderConfig,
        engines: Mapping[Bucket, LoadedEngine],
        rows: torch.Tensor,
        *,
        max_streams: int,
    ) -> None:
        """`rows`: the table that calls go by. Raises TensorrtError for engines that are not of one kind."""
        self._engines = engines
        self._rows = rows
        self._frames_margin = Synthesis(config, device=rows.device).num_tail_frames
        self._num_bins = config.stft_size + 2
        # All but what lies in the workspaces.
        groups = [name for name in next(iter(engines.values())).tensors if name not in _IN_WORKSPACE]
        self._shared = SharedTensors(engines.values(), groups, rows.device)
        # One row more than streams: idle rows of a call have it.
        self.kept = {
            name: torch.zeros(max_streams + 1, *spec.shape[1:], dtype=spec.dtype, device=rows.device)
            for name, spec in engines[max(engines)].tensors.items()
            if name in _KEPT
        }
        self._bound: dict[Bucket, tuple[BoundEngine, dict[str, torch.Tensor]]] = {}

    @property
    def specs(self) -> list[BufferSpec]:
        return []

    def prepare(self, space: Workspace) -> None:
        """Raises TensorrtError."""
        bucket = (space.num_streams, space.num_frames)
        engine = self._engines.get(bucket)
        if engine is None:
            raise TensorrtError(f"no engine for {space.num_streams} streams and {space.num_frames} frames")
        tensors = self._shared.bindings(engine) | {name: space.views[name][0] for name in _IN_WORKSPACE}
        self._bound[bucket] = (engine.bind(tensors, self._shared.scratch), tensors)

    def begin(self, space: Workspace) -> None:
        """An engine begins where everything is there."""

    def finish(self, space: Workspace) -> None:
        engine, tensors = self._bound[space.num_streams, space.num_frames]
        rows = self._rows[: space.num_streams]
        slots, is_first = rows[:, row_fields.SLOT_FIELD], rows[:, row_fields.FIRST_FIELD]
        for name, kept in self.kept.items():
            torch.index_select(kept, 0, slots, out=tensors[name])
        # Selected, not multiplied: a slot that nobody has written yet may hold anything.
        tensors["state"].masked_fill_(is_first[:, None] != 0, 0)
        tensors["frames"].copy_(rows[:, row_fields.FRAMES_FIELD])
        tensors["is_first"].copy_(is_first)
        engine.enqueue(current_stream(rows.device))
        for name, kept in self.kept.items():
            kept.index_copy_(0, slots, tensors[f"new_{name}"])
        space.views["frames"][0, :, self._frames_margin :, : self._num_bins].copy_(tensors["filtered"])
