"""The vocoder on a CUDA device: golden data, graphs against eager, streams against each other, used slots.

What the faster precisions cost is printed: run with -s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest
import torch

from tests.support import golden
from tests.support.vocoder import feed_together, golden_model, offline, plain_runner
from voicegate.engine import units
from voicegate.engine.vocoder.backend import (
    VocoderJob,
    VocoderStream,
    VocoderStreamsExhausted,
    VocoderStreamTooLong,
)
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import VocoderRunner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CUDA = torch.device("cuda")
NUM_FRAMES = 60
NUM_SAMPLES = NUM_FRAMES * units.SAMPLES_PER_FRAME
MAX_STREAMS = 5
# The golden README: two correct float32 implementations differ by 2e-5; ten times that.
TOLERANCE = 2e-4


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """A runner on the GPU, and the renderer behind it."""

    runner: VocoderRunner
    renderer: CudaRenderer

    @property
    def state(self) -> torch.Tensor:
        return self.renderer.network.state


@cache
def model() -> VocoderModel:
    return golden_model(NUM_SAMPLES, device=CUDA)


def make(precision: str = "float32", *, has_graphs: bool = True, has_side_streams: bool = True) -> Rendered:
    cuda = VocoderCudaConfig(
        precision=precision,
        batch_buckets=(1, 2, 4),
        frame_buckets=(4, 20, 40),
        has_graphs=has_graphs,
        has_side_streams=has_side_streams,
    )
    renderer = CudaRenderer(model(), cuda, max_streams=MAX_STREAMS)
    renderer.network.state.fill_(-1)  # NaN, whatever the type
    renderer.graphs.capture()
    renderer.network.state.fill_(-1)
    return Rendered(VocoderRunner(model(), renderer, max_streams=MAX_STREAMS), renderer)


@cache
def shared() -> VocoderRunner:
    """Used by the tests that leave it as they found it."""
    return make().runner


@cache
def reference() -> VocoderRunner:
    """The portable vocoder, on the CPU."""
    return plain_runner(golden_model(NUM_SAMPLES))


@cache
def arrays() -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(array) for key, array in golden.load_arrays("hift.npz").items()}


def mel() -> torch.Tensor:
    return arrays()["mel"][0].to(CUDA)


def feed(runner: VocoderRunner, stream: VocoderStream, frames: torch.Tensor, pieces: Sequence[int]) -> torch.Tensor:
    chunks = torch.split(frames, list(pieces), dim=1)
    samples = [
        runner.run([VocoderJob(stream, chunk, is_final=number == len(chunks))])[0]
        for number, chunk in enumerate(chunks, 1)
    ]
    return torch.cat(samples)


def render(runner: VocoderRunner, frames: torch.Tensor, *pieces: int) -> torch.Tensor:
    stream = runner.open()
    samples = feed(runner, stream, frames, pieces)
    runner.close(stream)
    return samples.cpu()


def assert_close(samples: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    assert samples.shape == expected.shape
    assert (samples - expected).abs().max() <= tolerance  # false for NaN


@pytest.mark.parametrize("pieces", [(60,), (20, 40), (20, 20, 20), (1, 2, 3, 4, 50, 0), (7, 0, 53), (1,) * 60])
def test_golden_speech_at_any_split(pieces: tuple[int, ...]) -> None:
    assert_close(render(shared(), mel(), *pieces), arrays()["speech_final"][0])


def test_offline_on_the_device() -> None:
    assert_close(offline(shared(), mel(), is_final=True).cpu(), arrays()["speech_final"][0])


def test_short_lives() -> None:
    for num_frames in range(1, 9):
        frames = mel()[:, :num_frames]
        expected = offline(reference(), frames.cpu(), is_final=True)
        assert_close(render(shared(), frames, num_frames), expected)
        assert_close(render(shared(), frames, *[1] * num_frames, 0), expected)


def test_strided_frames_and_frames_on_the_cpu_are_the_same() -> None:
    expected = render(shared(), mel(), 60)
    by_frame = mel().T.contiguous().T  # [80, n], a frame's bands side by side
    assert torch.equal(render(shared(), by_frame, 60), expected)
    assert torch.equal(render(shared(), mel().cpu(), 60), expected)


def test_graphs_and_side_streams_change_no_sample() -> None:
    pieces = (5, 20, 35)
    for precision in ("float32", "float16"):
        expected = render(make(precision, has_graphs=False, has_side_streams=False).runner, mel(), *pieces)
        assert expected.isfinite().all()
        assert torch.equal(render(make(precision, has_graphs=False).runner, mel(), *pieces), expected)
        assert torch.equal(render(make(precision).runner, mel(), *pieces), expected)


def test_every_bucket_is_captured_once() -> None:
    runner = make().runner
    assert runner.graphs.num_graphs == 9
    render(runner, mel(), 1, 20, 39)
    assert runner.graphs.num_graphs == 9


def test_a_job_before_capture_says_what_to_do() -> None:
    runner = VocoderRunner(model(), CudaRenderer(model(), VocoderCudaConfig(), max_streams=1), max_streams=1)
    with pytest.raises(RuntimeError, match="capture"):
        runner.run([VocoderJob(runner.open(), mel(), is_final=True)])


# --- batches and slots ------------------------------------------------------------------------------------------

PLANS: tuple[tuple[int, ...], ...] = ((20, 20, 20), (3, 50), (1, 0, 40, 2), (33,), (60,))


def own_mel(number: int, num_frames: int) -> torch.Tensor:
    return mel().roll(7 * number, dims=1)[:, :num_frames]


def test_a_ragged_batch_equals_each_stream_alone() -> None:
    runner, on_cpu = make().runner, reference()
    chunks = [torch.split(own_mel(number, sum(plan)), list(plan), dim=1) for number, plan in enumerate(PLANS)]
    for number, parts in enumerate(feed_together(runner, chunks)):
        samples = torch.cat(parts).cpu()
        frames = own_mel(number, sum(PLANS[number]))
        assert_close(samples, offline(on_cpu, frames.cpu(), is_final=True))
        assert_close(samples, render(runner, frames, *PLANS[number]), 1e-6)


def test_a_used_and_poisoned_slot_is_a_fresh_one() -> None:
    rendered = make()
    runner = rendered.runner
    expected = render(runner, mel(), 20, 40)
    abandoned = runner.open()
    runner.run([VocoderJob(abandoned, mel()[:, :20], is_final=False)])
    runner.close(abandoned)
    rendered.state.fill_(-1)
    for _ in range(MAX_STREAMS + 1):
        assert torch.equal(render(runner, mel(), 20, 40), expected)


def test_who_joins_leaves_or_is_refused_changes_no_other() -> None:
    runner = make().runner
    expected = render(runner, mel(), 20, 20, 20)
    kept = runner.open()
    outputs = []
    others: list[VocoderStream] = []
    for step in range(3):
        for other in others:
            runner.close(other)
        others = [runner.open() for _ in range(MAX_STREAMS - 1)]
        with pytest.raises(VocoderStreamsExhausted):
            runner.open()
        jobs = [VocoderJob(other, own_mel(step, 11 * (step + 1)), is_final=False) for other in others]
        too_long = VocoderJob(others[0], torch.zeros(80, 61, device=CUDA), is_final=False)
        own = VocoderJob(kept, mel()[:, 20 * step : 20 * (step + 1)], is_final=step == 2)
        with pytest.raises(VocoderStreamTooLong):
            runner.run([own, too_long])
        outputs.append(runner.run([*jobs, own])[-1])
    assert_close(torch.cat(outputs).cpu(), expected, 1e-6)


def test_samples_of_a_call_outlive_the_next() -> None:
    runner = shared()
    streams = [runner.open() for _ in range(2)]
    first = [runner.run([VocoderJob(stream, mel(), is_final=True)])[0] for stream in streams]
    assert torch.equal(first[0], first[1])
    assert first[0].data_ptr() != first[1].data_ptr()
    for stream in streams:
        runner.close(stream)


# --- precisions -------------------------------------------------------------------------------------------------


def log_spectrum(samples: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(960)
    return torch.stft(samples, 960, 480, window=window, return_complex=True).abs().clamp(min=1e-3).log()


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 0.02), ("float16", 0.02), ("bfloat16", 0.2)])
def test_precisions_are_close(precision: str, tolerance: float) -> None:
    expected = arrays()["speech_final"][0]
    samples = render(make(precision).runner, mel(), 20, 40)
    relative = ((samples - expected).norm() / expected.norm()).item()
    spectral = (log_spectrum(samples) - log_spectrum(expected)).abs().mean().item()
    print(f"\n{precision}: {relative:.2e} of the signal, log spectrum {spectral:.2e}", end="")
    assert relative < tolerance


def test_every_precision_is_tested() -> None:
    assert set(PRECISIONS) == {"float32", "tf32", "float16", "bfloat16"}
