"""The shape of one engine of the vocoder's filter, and its name. Nothing of torch, ONNX or TensorRT."""

from dataclasses import dataclass
from typing import Final

# Version of filter_graph.py: engines of another are stale.
GRAPH_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class FilterShape:
    num_rows: int
    num_frames: int  # by which a row advances at the most
    mel_channels: int  # of the buffers that it reads, which have more than are read
    spectrum_channels: int

    @property
    def name(self) -> str:
        return f"vocoder_{self.num_rows}x{self.num_frames}"
