"""The vocoder on a GPU at full size with random weights: checks, then milliseconds by batch, part, tile and precision.

python -m bench.kernels_vocoder [--parts check batches parts tiles torch precision] [--output FILE.json]

Floor: 673.8 MFLOP per mel frame over the matrix units' rate. Numbers are medians of CUDA graph replays.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from engine import units
from engine.model_config import VocoderConfig
from engine.token2wav.vocoder.cuda.config import MATRIX_UNIT_TILES, PRECISIONS, Tile, VocoderCudaConfig
from engine.token2wav.vocoder.cuda.convolutions import Convolutions
from engine.token2wav.vocoder.cuda.rows import Row
from engine.token2wav.vocoder.cuda.runner import CudaVocoderRunner
from engine.token2wav.vocoder.runner import VocoderJob, VocoderRunner
from engine.token2wav.vocoder.weights import F0_PREFIX, vocoder_shapes

FULL_SIZE: Final = VocoderConfig(
    base_channels=512,
    f0_channels=512,
    num_harmonics=8,
    sine_amplitude=0.1,
    noise_std=0.003,
    voiced_threshold_hz=10,
    upsample_rates=(8, 5, 3),
    upsample_kernels=(16, 11, 7),
    stft_size=16,
    stft_hop=4,
    resblock_kernels=(3, 7, 11),
    resblock_dilations=((1, 3, 5),) * 3,
    source_resblock_kernels=(7, 7, 11),
    source_resblock_dilations=((1, 3, 5),) * 3,
    leaky_relu_slope=0.1,
    audio_limit=0.99,
    look_right_frames=4,
)
DEVICE: Final = torch.device("cuda")
CPU: Final = torch.device("cpu")
FLOP_PER_FRAME: Final = 673.8e6
# Dense rates of an H200's matrix units that were read there (bfloat16) or follow from the ratio (tf32).
FLOP_PER_S: Final = {"float16": 790e12, "bfloat16": 790e12, "tf32": 395e12}
BATCHES: Final = (1, 2, 4, 8, 16, 32)
MAX_FRAMES: Final = 400
_REPEATS: Final = 15
_TILES: Final = (
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


def random_state_dict(config: VocoderConfig) -> dict[str, torch.Tensor]:
    """The golden README's rule with another generator: pitch of 0 to 400 Hz, audio inside its limits."""
    generator = torch.Generator().manual_seed(0)
    state: dict[str, torch.Tensor] = {}
    for name, shape in vocoder_shapes(config).items():
        normal = torch.randn(shape, generator=generator)
        if name.endswith("original0"):
            state[name] = 1 + 0.1 * normal.abs()
        elif len(shape) >= 2:
            state[name] = normal / math.sqrt(math.prod(shape[1:]))
        else:
            state[name] = 0.1 * normal + (1 if name.endswith((".weight", ".alpha")) else 0)
    state[f"{F0_PREFIX}classifier.weight"] *= 150
    state["conv_post.parametrizations.weight.original0"] *= 0.1
    state["conv_post.bias"] -= 1.5
    return state


class Fixture:
    def __init__(self) -> None:
        self.state = random_state_dict(FULL_SIZE)
        num_samples = MAX_FRAMES * units.SAMPLES_PER_FRAME
        generator = torch.Generator().manual_seed(1)
        self.excitation = torch.rand(num_samples, 9, generator=generator)
        self.mel = torch.randn(max(BATCHES), units.NUM_MELS, MAX_FRAMES, generator=generator).to(DEVICE)

    def runner(self, cuda: VocoderCudaConfig) -> CudaVocoderRunner:
        return CudaVocoderRunner(
            FULL_SIZE,
            self.state,
            excitation=self.excitation,
            max_samples=len(self.excitation),
            max_streams=max(BATCHES),
            device=DEVICE,
            cuda=cuda,
        )

    def torch_runner(self, device: torch.device) -> VocoderRunner:
        return VocoderRunner(
            FULL_SIZE,
            self.state,
            excitation=self.excitation,
            max_samples=len(self.excitation),
            max_streams=max(BATCHES),
            device=device,
        )

    def render(self, runner: VocoderRunner, number: int, pieces: Sequence[int]) -> torch.Tensor:
        stream = runner.open()
        chunks = torch.split(self.mel[number, :, : sum(pieces)], list(pieces), dim=1)
        samples = [
            runner.run([VocoderJob(stream, chunk, is_final=index == len(chunks))])[0]
            for index, chunk in enumerate(chunks, 1)
        ]
        runner.close(stream)
        return torch.cat(samples)


def quiet(_: str) -> None:
    """A report that nobody reads."""


def replay_ms(work: Callable[[], None]) -> float:
    """Median over replays of a graph that holds `work` several times."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return time_ms(graph.replay)


def time_ms(work: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(_REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(3):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 3)
    return median(times)


def log_spectrum(samples: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(960, device=samples.device)
    return torch.stft(samples, 960, 480, window=window, return_complex=True).abs().clamp(min=1e-3).log()


def error(samples: torch.Tensor, expected: torch.Tensor) -> dict[str, float]:
    difference = samples - expected
    return {
        "max": difference.abs().max().item(),
        "relative_rms": (difference.norm() / expected.norm()).item(),
        "log_spectrum_mean": (log_spectrum(samples) - log_spectrum(expected)).abs().mean().item(),
    }


# --- parts ------------------------------------------------------------------------------------------------------


def check(fixture: Fixture) -> dict[str, Any]:
    """float32 kernels against the CPU's layers, by pieces."""
    mel = fixture.mel[0, :, :30].cpu()
    expected = fixture.torch_runner(CPU).render_offline(mel, is_final=True)
    cuda = VocoderCudaConfig(precision="float32", batch_buckets=(1,), frame_buckets=(8, 20), use_graphs=False)
    runner = fixture.runner(cuda)
    runner.state.fill_(-1)
    return error(fixture.render(runner, 0, [20, 10]).cpu(), expected) | {"std": expected.std().item()}


def precision(fixture: Fixture) -> dict[str, Any]:
    """Against float32, over 120 frames; the pitch and so the phases are the same in all."""
    pieces = [20, 50, 50]
    buckets = VocoderCudaConfig(precision="float32", batch_buckets=(1,), use_graphs=False)
    expected = fixture.render(fixture.runner(buckets), 1, pieces)
    return {
        name: error(fixture.render(fixture.runner(replace(buckets, precision=name)), 1, pieces), expected)
        for name in PRECISIONS
        if name != "float32"
    }


def batches(fixture: Fixture) -> dict[str, Any]:
    """A call's graph, and the whole of `run` as the engine's thread sees it."""
    results: dict[str, Any] = {}
    for name in ("float16", "tf32"):
        runner = fixture.runner(VocoderCudaConfig(precision=name))
        started_s = time.perf_counter()
        runner.capture(partial(print, flush=True))
        results[f"{name} capture"] = {"s": time.perf_counter() - started_s}
        for num_frames in (20, 50):
            for num_streams in BATCHES:
                key = f"{name} {num_streams}x{num_frames}"
                results[key] = _batch(fixture, runner, name, num_streams, num_frames)
        del runner
    return results


def _batch(
    fixture: Fixture, runner: CudaVocoderRunner, name: str, num_streams: int, num_frames: int
) -> dict[str, float]:
    streams = [runner.open() for _ in range(num_streams)]
    jobs = [
        VocoderJob(stream, mel[:, :num_frames], is_final=False)
        for stream, mel in zip(streams, fixture.mel, strict=False)
    ]
    host_s = []

    def run() -> None:
        for stream in streams:
            stream.num_frames, stream.num_lookahead = 100, 4
        started_s = time.perf_counter()
        runner.run(jobs)
        host_s.append(time.perf_counter() - started_s)

    run()
    milliseconds = time_ms(run)
    for stream in streams:
        runner.close(stream)
    floor_ms = FLOP_PER_FRAME * num_streams * num_frames / FLOP_PER_S[name] * 1e3
    return {
        "ms": milliseconds,
        "floor_ms": floor_ms,
        "tflop_per_s": FLOP_PER_FRAME * num_streams * num_frames / milliseconds / 1e9,
        "host_us": median(host_s) * 1e6,
    }


def _busy_rows(runner: CudaVocoderRunner, mel: torch.Tensor, num_streams: int, num_frames: int) -> None:
    for number in range(num_streams):
        new = mel[number]
        row = Row(number, num_frames, 0, 0, 100, 4, num_frames, new.data_ptr(), new.stride(0), new.stride(1))
        runner.network.rows[number] = torch.tensor(row, device=DEVICE)


def _part_ms(fixture: Fixture, runner: CudaVocoderRunner, num_streams: int, num_frames: int) -> dict[str, float]:
    """Each part of a call in a graph of its own, without side streams."""
    network = runner.network
    space = network.workspace(num_streams, num_frames)
    _busy_rows(runner, fixture.mel, num_streams, num_frames)
    works: dict[str, Callable[[], None]] = {
        "load": partial(network.load_tails, space),
        "gather": partial(network.gather, space),
        "pitch": partial(network.pitch.run, space, network.rows),
        "analyse": partial(network.analyse, space),
        **_convolution_works(runner, num_streams, num_frames),
        "synthesise": partial(network.synthesise, space),
        "save": partial(network.save_tails, space),
    }
    return {name: replay_ms(work) for name, work in works.items()}


def _convolution_works(runner: CudaVocoderRunner, num_streams: int, num_frames: int) -> dict[str, Callable[[], None]]:
    network = runner.network
    space = network.workspace(num_streams, num_frames)
    works: dict[str, Callable[[], None]] = {"enter": partial(network.enter_filter, space)}
    for number, stage in enumerate(network.stages):
        works[f"excite{number}"] = partial(network.excite, space, number)
        if number:
            works[f"up{number}"] = lambda stage=stage: stage.upsample(network.convolve, space)  # type: ignore[misc]
        works[f"filter{number}"] = partial(network.filter_stage, space, number)
    works["leave"] = partial(network.leave_filter, space)
    return works


def parts(fixture: Fixture) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in ("float16", "tf32"):
        runner = fixture.runner(VocoderCudaConfig(precision=name, use_graphs=False))
        for num_streams, num_frames in ((1, 20), (1, 56), (32, 50)):
            results[f"{name} {num_streams}x{num_frames}"] = _part_ms(fixture, runner, num_streams, num_frames)
        del runner
    return results


def tiles(fixture: Fixture) -> dict[str, Any]:
    """Each part's convolutions with one tile for all of them."""
    results: dict[str, Any] = {}
    for name in ("float16", "tf32"):
        cuda = VocoderCudaConfig(precision=name, use_graphs=False, use_side_streams=False)
        runner = fixture.runner(cuda)
        network = runner.network
        _busy_rows(runner, fixture.mel, max(BATCHES), 50)
        for tile in _TILES:
            network.convolve = Convolutions(
                replace(cuda, tiles=(tile, *MATRIX_UNIT_TILES), min_programs=0), network.rows
            )
            for num_streams, num_frames in ((1, 20), (2, 50), (8, 50), (32, 50)):
                works = _convolution_works(runner, num_streams, num_frames)
                shape = f"{tile.columns},{tile.outputs},{tile.num_warps},{tile.num_stages}"
                key = f"{name} {num_streams}x{num_frames} {shape}"
                results[key] = {part: replay_ms(work) for part, work in works.items()}
        del runner, network
    return results


def torch_operations(fixture: Fixture) -> dict[str, Any]:
    """The portable vocoder on the same device: cuDNN convolutions in tf32, launched one by one."""
    runner = fixture.torch_runner(DEVICE)
    results: dict[str, Any] = {}
    for num_streams in (1, 32):
        streams = [runner.open() for _ in range(num_streams)]
        mels = fixture.mel[:num_streams, :, :50]
        runner.run([VocoderJob(stream, mel, is_final=False) for stream, mel in zip(streams, mels, strict=True)])

        def run(streams: list[Any] = streams, mels: torch.Tensor = mels) -> None:
            for stream in streams:
                stream.num_frames = 100
            runner.run([VocoderJob(stream, mel, is_final=False) for stream, mel in zip(streams, mels, strict=True)])

        results[f"{num_streams}x50"] = time_ms(run)
        for stream in streams:
            runner.close(stream)
    return results


_PARTS: Final[dict[str, Callable[[Fixture], dict[str, Any]]]] = {
    "check": check,
    "precision": precision,
    "batches": batches,
    "parts": parts,
    "tiles": tiles,
    "torch": torch_operations,
}


def _print(name: str, result: dict[str, Any]) -> None:
    print(f"--- {name}")
    for key, value in result.items():
        if isinstance(value, dict):
            cells = " ".join(f"{cell}={number:.4g}" for cell, number in value.items())
            print(f"{key:28} {cells}")
        else:
            print(f"{key:28} {value:.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument("--output", type=Path, help="write all numbers as JSON")
    arguments = parser.parse_args()
    fixture = Fixture()
    results: dict[str, Any] = {}
    for name in arguments.parts:
        started_s = time.perf_counter()
        with torch.inference_mode():
            results[name] = _PARTS[name](fixture)
        _print(name, results[name])
        print(
            f"({time.perf_counter() - started_s:.0f} s, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB)",
            flush=True,
        )
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
