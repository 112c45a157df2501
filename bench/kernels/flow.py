"""The flow's blocks on a GPU, by batch, at full size with random weights.

A block is 50 mel frames, one second of speech: 10 Euler steps of two CFG halves.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import torch

from voicegate.bench.kernels.floors import flow_block
from voicegate.bench.kernels.flow_model import CONTEXTS, FULL_SIZE, FlowFixture
from voicegate.bench.kernels.timing import device_ms, host_ms
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.solver import CudaSolver
from voicegate.engine.flow.stream import BlockRow, BlockStream

# Whole blocks that fill a bucket.
_BATCHES: Final = (1, 2, 4, 8, 12, 18, 24, 34, 42, 50, 62, 74, 84)


def batch_ms(
    solver: CudaSolver, fixture: FlowFixture, frames_of_rows: Sequence[int], contexts: int | Sequence[int]
) -> float:
    """All Euler steps of these blocks together."""
    solve = solver.begin(*fixture.batch(frames_of_rows, contexts))

    def work() -> None:
        solve.view.step.zero_()
        for _ in range(FULL_SIZE.num_euler_steps):
            solve.advance()

    work()
    figure = device_ms(work)
    solve.release()
    return figure


def begin_once(solver: CudaSolver, streams: Sequence[BlockStream], rows: Sequence[BlockRow]) -> None:
    solver.begin(streams, rows).release()


@torch.inference_mode()
def measure() -> dict[str, Any]:
    """Blocks of 50 frames by batch, [measured, floor] in ms; and short ones."""
    fixture, config = FlowFixture(), FlowCudaConfig()
    solver = CudaSolver(fixture.model, fixture.pool, config)
    started_s = time.perf_counter()
    solver.graphs.capture()
    figures: dict[str, Any] = {
        "capture_s": time.perf_counter() - started_s,
        "num_graphs": solver.graphs.num_graphs,
    }
    print("block of 50 frames      " + "".join(f"  B={num_rows:<7}" for num_rows in _BATCHES))
    for context in CONTEXTS:
        times = {b: batch_ms(solver, fixture, [FRAMES_PER_BLOCK] * b, context) for b in _BATCHES}
        floors = {b: flow_block(FULL_SIZE, b, context).floor_us() / 1e3 for b in times}
        print(f"context {context}: ms          " + "".join(f"{value:9.2f}  " for value in times.values()))
        print("             of floor   " + "".join(f"{100 * floors[b] / times[b]:8.0f} % " for b in times), flush=True)
        figures[f"block_ms_context_{context}"] = {b: (times[b], floors[b]) for b in times}
    for num_frames in (16, 32):
        figures[f"block_ms_frames_{num_frames}"] = time_ms = batch_ms(solver, fixture, [num_frames], 450)
        print(f"one block of {num_frames} frames, context 450: {time_ms:.2f} ms")
    return figures | {
        f"host_ms_{num_rows}": host_figures(solver, fixture, num_rows) for num_rows in (1, config.max_batch)
    }


def host_figures(solver: CudaSolver, fixture: FlowFixture, num_rows: int) -> dict[str, float]:
    """Milliseconds of Python for each call of a batch."""
    streams, rows = fixture.batch([FRAMES_PER_BLOCK] * num_rows, 450)
    begin_and_release = partial(begin_once, solver, streams, rows)
    begin_host, begin_device = host_ms(begin_and_release), device_ms(begin_and_release)
    solve = solver.begin(streams, rows)
    advance_host = host_ms(solve.advance)
    frames_host = host_ms(partial(solve.frames, [slice(0, FRAMES_PER_BLOCK)] * num_rows))
    solve.release()
    print(
        f"B={num_rows}: begin {begin_device:.3f} ms on the device, {begin_host:.3f} ms of Python; "
        f"advance {advance_host:.3f} ms, result {frames_host:.3f} ms of Python",
        flush=True,
    )
    return {"begin": begin_host, "advance": advance_host, "result": frames_host}
