"""Which tiles of the vocoder's convolutions are fastest on this GPU: the source of the choices in cuda/config.py.

python -m voicegate.bench.kernels.tune_vocoder
"""

from dataclasses import astuple, replace
from typing import Final

import torch

from voicegate.bench.kernels.timing import captured_us
from voicegate.bench.kernels.vocoder import busy_rows, convolution_works, kernels_of
from voicegate.bench.kernels.vocoder_model import BATCHES, VocoderFixture
from voicegate.engine.token2wav.vocoder.cuda.config import MATRIX_UNIT_TILES, Tile, VocoderCudaConfig
from voicegate.engine.token2wav.vocoder.cuda.convolutions import Convolutions

_SHAPES: Final = ((1, 20), (2, 50), (8, 50), (32, 50))  # streams, frames
TILES: Final = (
    *MATRIX_UNIT_TILES,
    Tile(256, 128, 8, 3, 0.0, num_slices=4),
    Tile(128, 128, 8, 3, 0.0),
    Tile(256, 64, 4, 2, 0.0, num_slices=4),
    Tile(128, 64, 4, 3, 0.0),
    Tile(128, 64, 4, 2, 0.0, num_slices=4, max_registers=128),
    Tile(64, 64, 4, 4, 0.0, num_slices=2),
    Tile(32, 64, 4, 4, 0.0),
    Tile(128, 32, 4, 4, 0.0),
)


def tune(fixture: VocoderFixture, precision: str) -> None:
    """us of each part's convolutions with one tile for all of them."""
    cuda = VocoderCudaConfig(precision=precision, has_graphs=False)
    network = fixture.renderer(cuda).network
    busy_rows(network, fixture.mel, max(BATCHES), 50)
    for tile in TILES:
        tiles = (replace(tile, cost=0.0), *MATRIX_UNIT_TILES)  # where it fits, none is cheaper
        kernels_of(network).convolve = Convolutions(replace(cuda, tiles=tiles), network.rows)
        shape = ",".join(str(number) for number in astuple(replace(tile, cost=0.0)))
        for num_streams, num_frames in _SHAPES:
            works = convolution_works(network, num_streams, num_frames)
            cells = " ".join(f"{part}={captured_us(work):.1f}" for part, work in works.items())
            print(f"{precision} {num_streams}x{num_frames} {shape:26} {cells}", flush=True)


@torch.inference_mode()
def main() -> None:
    fixture = VocoderFixture()
    for precision in ("float16", "tf32"):
        tune(fixture, precision)


if __name__ == "__main__":
    main()
