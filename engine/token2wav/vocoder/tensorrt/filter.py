"""The filter by TensorRT engines, one for each bucket of the CUDA network. What streams carry is kept here, by slot."""

from collections.abc import Mapping
from typing import Final

import torch

from voicegate.engine.device.tensorrt.library import BoundEngine, LoadedEngine, TensorrtError
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.token2wav.vocoder.cuda import rows as row_fields
from voicegate.engine.token2wav.vocoder.cuda.buffers import BufferSpec, Workspace
from voicegate.engine.token2wav.vocoder.stft import Synthesis

Bucket = tuple[int, int]  # streams, frames

_KEPT: Final = ("state", "edge")  # each comes out as new_...


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
        # Engines of a stream run one after the other: they share all but what lies in the workspaces.
        scratch_bytes = max(engine.scratch_bytes for engine in engines.values())
        self._scratch = torch.empty(max(scratch_bytes, 1), dtype=torch.uint8, device=rows.device)
        largest = engines[max(engines)]
        self._io = {
            name: torch.zeros(spec.shape, dtype=spec.dtype, device=rows.device)
            for name, spec in largest.tensors.items()
            if name not in ("mel", "spectra")
        }
        # One row more than streams: idle rows of a call have it.
        self.kept = {name: self._io[name].new_zeros(max_streams + 1, *self._io[name].shape[1:]) for name in _KEPT}
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
        tensors = {name: self._part(name, engine) for name in self._io}
        tensors |= {name: space.views[name][0] for name in ("mel", "spectra")}
        self._bound[bucket] = (engine.bind(tensors, self._scratch), tensors)

    def _part(self, name: str, engine: LoadedEngine) -> torch.Tensor:
        """Of the largest engine's memory, as the smaller one lays it out."""
        shape = engine.tensors[name].shape
        flat = self._io[name].flatten()
        count = torch.Size(shape).numel()
        if count > len(flat):
            raise TensorrtError(f"{name} is {list(shape)} in one engine, {list(self._io[name].shape)} in a larger one")
        return flat[:count].view(shape)

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
        engine.enqueue(_current_stream(rows.device))
        for name, kept in self.kept.items():
            kept.index_copy_(0, slots, tensors[f"new_{name}"])
        space.views["frames"][0, :, self._frames_margin :, : self._num_bins].copy_(tensors["filtered"])


def _current_stream(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0
