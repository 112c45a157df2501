"""The vocoder's calls on a GPU, by batch and precision, at full size with random weights."""

import time
from itertools import product
from statistics import median
from typing import Any, Final

import torch

from voicegate.bench.kernels.floors import vocoder_call
from voicegate.bench.kernels.timing import device_ms
from voicegate.bench.kernels.vocoder_model import BATCHES, FULL_SIZE, VocoderFixture
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.runner import VocoderRunner

_NUM_RUNS: Final = 15
_CALLS_PER_RUN: Final = 3


@torch.inference_mode()
def measure() -> dict[str, Any]:
    """A call's graph, and the whole of `run` as the engine's thread sees it."""
    fixture = VocoderFixture()
    results: dict[str, Any] = {}
    for name in ("float16", "tf32"):
        renderer = fixture.renderer(VocoderCudaConfig(precision=name))
        runner = fixture.runner(renderer)
        started_s = time.perf_counter()
        renderer.graphs.capture()
        results[f"{name} capture"] = {"s": time.perf_counter() - started_s}
        for num_frames, num_streams in product((20, 50), BATCHES):
            key = f"{name} {num_streams}x{num_frames}"
            results[key] = found = _batch(fixture, runner, name, num_streams, num_frames)
            print(f"{key:28} {' '.join(f'{cell}={number:.4g}' for cell, number in found.items())}", flush=True)
        del renderer, runner
    return {"batches": results}


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
    itemsize = PRECISIONS[name].dtype.itemsize
    cost = vocoder_call(FULL_SIZE, num_streams, num_frames, itemsize=itemsize)
    return {
        "ms": milliseconds,
        "floor_ms": cost.floor_us(name) / 1e3,
        "tflop_per_s": cost.flop / milliseconds / 1e9,
        "host_us": median(host_s) * 1e6,
    }
