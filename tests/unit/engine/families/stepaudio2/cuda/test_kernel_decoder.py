"""The vocoder's convolutions by the first family's kernels, against torch's; interpreted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from unittest import mock

import pytest
import torch

from tests.support.stepaudio2 import CPU, generated, normal
from tests.support.vocoder import SMALL_VOCODER
from tests.support.vocoder_errors import log_spectrum_error, relative_error
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.vocoder.cuda.kernel_decoder import KernelDecoder
from voicegate.engine.families.stepaudio2.vocoder.network import RowLengths, StepAudio2Network
from voicegate.engine.families.stepaudio2.vocoder.weights import load_vocoder_weights, vocoder_shapes
from voicegate.engine.vocoder.cuda.config import PRECISIONS, Tile, VocoderCudaConfig

pytestmark = [
    pytest.mark.usefixtures("poisoned_memory"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="CPU tensors; tests/gpu runs the kernels on CUDA"),
]

# Even kernels have no middle, and nothing is awaited: layers look both ways.
SMALL = replace(SMALL_VOCODER, resblock_kernels=(3, 5), source_resblock_kernels=(3, 3), look_right_frames=0)
# Large ones, the slower the interpreter is the more there are; cut in four and in two at the end.
TILES = (Tile(256, 128, 4, 2, 0.0, num_slices=4), Tile(256, 32, 4, 2, 1.0, num_slices=2))
FRAMES = (2, 1)  # of two rows in two


@cache
def network() -> StepAudio2Network:
    return StepAudio2Network(SMALL, weights(), device=CPU)


@cache
def weights() -> dict[str, torch.Tensor]:
    return load_vocoder_weights(SMALL, generated(vocoder_shapes(SMALL)), device=CPU)


def decoder(precision: str) -> KernelDecoder:
    """A decoder whose unwritten memory is NaN in every type."""
    cuda = VocoderCudaConfig(precision=precision, batch_buckets=(1, 2), frame_buckets=(1, 2), tiles=TILES)
    made = KernelDecoder(SMALL, weights(), cuda, device=CPU)
    made.arena.fill_(-1)
    return made


def call() -> tuple[torch.Tensor, torch.Tensor, RowLengths]:
    """Rows with garbage behind them."""
    num_rows, longest = len(FRAMES), max(FRAMES)
    lengths = RowLengths(torch.tensor(FRAMES), longest)
    mel = normal("decoder.mel", (num_rows, units.NUM_MELS, longest))
    source = 0.1 * normal("decoder.source", (num_rows, longest * units.SAMPLES_PER_FRAME)).tanh()
    return mel, network().spectra(source, lengths), lengths


def own(samples: torch.Tensor) -> torch.Tensor:
    return torch.cat([row[: frames * units.SAMPLES_PER_FRAME] for row, frames in zip(samples, FRAMES, strict=True)])


@contextmanager
def exact_sine(precision: str) -> Iterator[None]:
    """The interpreter has not the hardware's."""
    with mock.patch.dict(PRECISIONS, {precision: replace(PRECISIONS[precision], has_fast_sine=False)}):
        yield


def test_padded_rows_are_what_torch_makes_of_them() -> None:
    actual, expected = own(decoder("float32")(*call())), own(network().decode(*call()))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.soak
def test_half_precision_is_near() -> None:
    """Measured: 1.0e-4 of the signal, 1.2e-3 of its log spectrum. The interpreter cannot multiply in bfloat16."""
    with exact_sine("float16"):
        samples = own(decoder("float16")(*call()))
    expected = own(network().decode(*call()))
    assert relative_error(samples, expected) < 1e-3
    assert log_spectrum_error(samples, expected) < 1e-2
