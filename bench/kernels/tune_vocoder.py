"""Which tiles of the vocoder's convolutions are fastest on this GPU: the source of the choices in cuda/config.py.

python -m bench.kernels.tune_vocoder
"""

from dataclasses import replace
from typing import Final

import torch

from bench.kernels.vocoder import busy_rows, convolution_works, replay_us
from bench.kernels.vocoder_model import BATCHES, VocoderFixture
from engine.token2wav.vocoder.cuda.config import MATRIX_UNIT_TILES, Tile, VocoderCudaConfig
from engine.token2wav.vocoder.cuda.convolutions import Convolutions

_SHAPES: Final = ((1, 20), (2, 50), (8, 50), (32, 50))  # streams, frames
TILES: Final = (
    Tile(128, 256, 8, 3),
    Tile(256, 128, 8, 3),
    Tile(128, 128, 8, 3),
    Tile(128, 128, 8, 4),
    Tile(128, 128, 4, 3),
    Tile(256, 64, 8, 3),
    Tile(256, 64, 8, 4),
    Tile(128, 64, 4, 3),
    Tile(128, 64, 4, 4),
    Tile(64, 128, 4, 3),
    Tile(64, 128, 4, 4),
    Tile(64, 64, 4, 4),
    Tile(64, 32, 4, 4),
    Tile(64, 32, 4, 6),
)


def tune(fixture: VocoderFixture, precision: str) -> None:
    """us of each part's convolutions with one tile for all of them."""
    cuda = VocoderCudaConfig(precision=precision, use_graphs=False, use_side_streams=False)
    runner = fixture.runner(cuda)
    network = runner.network
    busy_rows(runner, fixture.mel, max(BATCHES), 50)
    for tile in TILES:
        network.convolve = Convolutions(replace(cuda, tiles=(tile, *MATRIX_UNIT_TILES), min_programs=0), network.rows)
        shape = f"{tile.columns},{tile.outputs},{tile.num_warps},{tile.num_stages}"
        for num_streams, num_frames in _SHAPES:
            works = convolution_works(runner, num_streams, num_frames)
            cells = " ".join(f"{part}={replay_us(work):.1f}" for part, work in works.items())
            print(f"{precision} {num_streams}x{num_frames} {shape:14} {cells}", flush=True)


@torch.inference_mode()
def main() -> None:
    fixture = VocoderFixture()
    for precision in ("float16", "tf32"):
        tune(fixture, precision)


if __name__ == "__main__":
    main()
