"""How loud a recording is over time, and in which bands: what silence and speech are told by."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch

from voicegate.engine.voices.audio_file import Recording

FRAMES_A_SECOND: Final = 50
WINDOW_S: Final = 0.08
# The bands of speech, in Hz; below them lie hum and rumble. Narrower -> noise varies as much as speech does.
_BAND_EDGES_HZ: Final = (150, 300, 500, 800, 1200, 1800, 2700, 4000, 6000)
_SILENCE: Final = 1e-12  # of a frame's power
# Windows that are in memory at a time.
_PIECE_FRAMES: Final = 64
# The loudest frames without the clicks among them: as many as speech has at least.
_LOUD_S: Final = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Loudness:
    bands: torch.Tensor  # [frames, bands] power
    levels_db: torch.Tensor  # [frames] of all bands

    @property
    def loud_db(self) -> float:
        """The level of its loud parts, however short they are beside its silence."""
        num_loud = max(1, min(round(_LOUD_S * FRAMES_A_SECOND), len(self.levels_db)))
        return float(self.levels_db.topk(num_loud).values[-1])


def loudness_of(recording: Recording) -> Loudness:
    """A frame is a window that begins `1 / FRAMES_A_SECOND` s behind the one before."""
    rate_hz, samples = recording.rate_hz, recording.samples - recording.samples.mean()
    size, hop = round(rate_hz * WINDOW_S), rate_hz // FRAMES_A_SECOND
    if len(samples) < size:
        samples = torch.nn.functional.pad(samples, (0, size - len(samples)))
    windows, shape = samples.unfold(0, size, hop), torch.hann_window(size)
    bins_hz = torch.fft.rfftfreq(size, 1 / rate_hz)
    edges = torch.searchsorted(bins_hz, torch.tensor(_BAND_EDGES_HZ, dtype=bins_hz.dtype)).tolist()
    pieces = []
    for piece in torch.split(windows, _PIECE_FRAMES):
        power = torch.fft.rfft(piece * shape).abs().square() / size**2
        pieces.append(torch.stack([power[:, a:b].sum(1) for a, b in pairwise(edges)], 1))
    bands = torch.cat(pieces)
    return Loudness(bands, 10 * bands.sum(1).clamp(min=_SILENCE).log10())
