"""The vocoder on a GPU at full size with random weights: checks, then milliseconds by batch, part and precision."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, Final

import torch

from voicegate.bench.kernels.floors import Cost, total, vocoder_parts
from voicegate.bench.kernels.timing import DEVICE, captured_us, device_ms
from voicegate.bench.kernels.vocoder_model import BATCHES, FULL_SIZE, VocoderFixture
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.kernel_filter import KernelFilter
from voicegate.engine.vocoder.cuda.network import CudaNetwork
from voicegate.engine.vocoder.cuda.rows import Row
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.vocoder.torch.offline import OfflineVocoder
from voicegate.engine.vocoder.torch.renderer import TorchRenderer

_CPU: Final = torch.device("cpu")
_NUM_RUNS: Final = 15
_CALLS_PER_RUN: Final = 3


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


# --- sections ---------------------------------------------------------------------------------------------------


def check(fixture: VocoderFixture) -> dict[str, Any]:
    """float32 kernels against the CPU's layers, by pieces."""
    mel = fixture.mel[0, :, :30].cpu()
    expected = OfflineVocoder(fixture.load(_CPU)).render(mel, is_final=True)
    cuda = VocoderCudaConfig(precision="float32", batch_buckets=(1,), frame_buckets=(8, 20), has_graphs=False)
    renderer = fixture.renderer(cuda)
    renderer.network.state.fill_(-1)
    return error(fixture.render(fixture.runner(renderer), 0, [20, 10]).cpu(), expected) | {"std": expected.std().item()}


def precision(fixture: VocoderFixture) -> dict[str, Any]:
    """Against float32, over 120 frames; the pitch and so the phases are the same in all."""
    pieces = [20, 50, 50]
    buckets = VocoderCudaConfig(precision="float32", batch_buckets=(1,), has_graphs=False)

    def rendered(name: str) -> torch.Tensor:
        renderer = fixture.renderer(replace(buckets, precision=name))
        return fixture.render(fixture.runner(renderer), 1, pieces)

    expected = rendered("float32")
    return {name: error(rendered(name), expected) for name in PRECISIONS if name != "float32"}


def batches(fixture: VocoderFixture) -> dict[str, Any]:
    """A call's graph, and the whole of `run` as the engine's thread sees it."""
    results: dict[str, Any] = {}
    for name in ("float16", "tf32"):
        renderer = fixture.renderer(VocoderCudaConfig(precision=name))
        runner = fixture.runner(renderer)
        started_s = time.perf_counter()
        renderer.graphs.capture()
        results[f"{name} capture"] = {"s": time.perf_counter() - started_s}
        for num_frames in (20, 50):
            for num_streams in BATCHES:
                key = f"{name} {num_streams}x{num_frames}"
                results[key] = _batch(fixture, runner, name, num_streams, num_frames)
        del renderer, runner
    return results


def _batch(
    fixture: VocoderFixture, runner: VocoderRunner, name: str, num_streams: int, num_frames: int
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
    milliseconds = device_ms(run, num_runs=_NUM_RUNS, calls_per_run=_CALLS_PER_RUN)
    for stream in streams:
        runner.close(stream)
    cost = total(_costs(name, num_streams, num_frames).values())
    return {
        "ms": milliseconds,
        "floor_ms": cost.floor_us(name) / 1e3,
        "tflop_per_s": cost.flop / milliseconds / 1e9,
        "host_us": median(host_s) * 1e6,
    }


def _costs(precision_name: str, num_streams: int, num_frames: int) -> dict[str, Cost]:
    itemsize = PRECISIONS[precision_name].dtype.itemsize
    return vocoder_parts(FULL_SIZE, num_streams, num_frames, itemsize=itemsize)


def busy_rows(network: CudaNetwork, mel: torch.Tensor, num_streams: int, num_frames: int) -> None:
    for number in range(num_streams):
        new = mel[number]
        row = Row(number, num_frames, 0, 0, 100, 4, num_frames, new.data_ptr(), new.stride(0), new.stride(1))
        network.rows[number] = torch.tensor(row, device=DEVICE)


def _part_us(fixture: VocoderFixture, network: CudaNetwork, num_streams: int, num_frames: int) -> dict[str, float]:
    """Each part of a call in a graph of its own, without side streams."""
    space = network.workspace(num_streams, num_frames)
    busy_rows(network, fixture.mel, num_streams, num_frames)
    works: dict[str, Callable[[], None]] = {
        "load": partial(network.load_tails, space),
        "gather": partial(network.gather, space),
        "pitch": partial(network.pitch.run, space, network.rows),
        "analyse": partial(network.analyse, space),
        **convolution_works(network, num_streams, num_frames),
        "synthesise": partial(network.synthesise, space),
        "save": partial(network.save_tails, space),
    }
    return {name: captured_us(work) for name, work in works.items()}


def convolution_works(network: CudaNetwork, num_streams: int, num_frames: int) -> dict[str, Callable[[], None]]:
    space, kernels = network.workspace(num_streams, num_frames), kernels_of(network)
    works: dict[str, Callable[[], None]] = {"enter": partial(kernels.enter, space)}
    for number, stage in enumerate(kernels.stages):
        works[f"excite{number}"] = partial(kernels.excite, space, number)
        if number:
            works[f"up{number}"] = lambda stage=stage: stage.upsample(kernels.convolve, space)  # type: ignore[misc]
        works[f"filter{number}"] = partial(kernels.run_stage, space, number)
    works["leave"] = partial(kernels.leave, space)
    return works


def kernels_of(network: CudaNetwork) -> KernelFilter:
    """Our own."""
    assert isinstance(network.filter, KernelFilter)
    return network.filter


def parts(fixture: VocoderFixture) -> dict[str, Any]:
    """us of each part, and where it has convolutions its floor."""
    results: dict[str, Any] = {}
    for name in ("float16", "tf32"):
        network = fixture.renderer(VocoderCudaConfig(precision=name, has_graphs=False)).network
        for num_streams, num_frames in ((1, 20), (1, 56), (32, 50)):
            key = f"{name} {num_streams}x{num_frames}"
            results[key] = _part_us(fixture, network, num_streams, num_frames)
            costs = _costs(name, num_streams, num_frames)
            results[f"{key} floor"] = {part: cost.floor_us(name) for part, cost in costs.items()}
        del network
    return results


def torch_operations(fixture: VocoderFixture) -> dict[str, Any]:
    """ms of the portable vocoder on the same device: cuDNN convolutions in tf32, launched one by one."""
    runner = fixture.runner(TorchRenderer(fixture.model, max_streams=max(BATCHES)))
    results: dict[str, Any] = {}
    for num_streams in (1, 32):
        streams = [runner.open() for _ in range(num_streams)]
        mels = fixture.mel[:num_streams, :, :50]
        runner.run([VocoderJob(stream, mel, is_final=False) for stream, mel in zip(streams, mels, strict=True)])

        def run(streams: list[Any] = streams, mels: torch.Tensor = mels) -> None:
            for stream in streams:
                stream.num_frames = 100
            runner.run([VocoderJob(stream, mel, is_final=False) for stream, mel in zip(streams, mels, strict=True)])

        results[f"{num_streams}x50"] = device_ms(run, num_runs=_NUM_RUNS, calls_per_run=_CALLS_PER_RUN)
        for stream in streams:
            runner.close(stream)
    return results


_SECTIONS: Final[dict[str, Callable[[VocoderFixture], dict[str, Any]]]] = {
    "check": check,
    "precision": precision,
    "batches": batches,
    "parts": parts,
    "torch": torch_operations,
}
SECTIONS: Final = tuple(_SECTIONS)


def _print(name: str, result: dict[str, Any]) -> None:
    print(f"--- {name}")
    for key, value in result.items():
        if isinstance(value, dict):
            cells = " ".join(f"{cell}={number:.4g}" for cell, number in value.items())
            print(f"{key:28} {cells}")
        else:
            print(f"{key:28} {value:.4g}")


@torch.inference_mode()
def measure(sections: Sequence[str]) -> dict[str, Any]:
    fixture = VocoderFixture()
    results: dict[str, Any] = {}
    for name in sections:
        started_s = time.perf_counter()
        results[name] = _SECTIONS[name](fixture)
        _print(name, results[name])
        peak_gib = torch.cuda.max_memory_allocated() / 2**30
        print(f"({time.perf_counter() - started_s:.0f} s, {peak_gib:.1f} GiB)", flush=True)
    return results
