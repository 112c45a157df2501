"""The flow's Euler step on a GPU, by batch, by kernel and by precision, at full size with random weights.

A block is 50 mel frames, one second of speech: 10 Euler steps of two CFG halves.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from voicegate.bench.kernels.floors import flow_block, flow_kernels
from voicegate.bench.kernels.flow_model import CONTEXTS, FULL_SIZE, FlowFixture, make_pool, random_state_dict
from voicegate.bench.kernels.timing import DEVICE, captured_us, device_ms, host_ms
from voicegate.engine import units
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda.buffers import BatchView
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.fused_attention import attend, attend_tile
from voicegate.engine.flow.cuda.ops import STEP_OPS, StepOps
from voicegate.engine.flow.cuda.solver import CudaSolve, CudaSolver
from voicegate.engine.flow.cuda.tensors import flow_tensors
from voicegate.engine.flow.estimator import EstimatorLayer
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockRow, BlockStream

SECTIONS: Final = ("blocks", "alone", "kinds", "fp8", "float8_products", "precision")
# Whole blocks that fill a bucket.
_BATCHES: Final = (1, 2, 4, 8, 12, 18, 24, 34, 42, 50, 62, 74, 84)
_KIND_BATCHES: Final = (1, 4, 18, 34, 84)
_CONTEXTS_ALONE: Final = (50, 150, 300, 450)
_OPS_OF_MANY: Final = replace(STEP_OPS, attend=partial(attend, tile=attend_tile(torch.bfloat16, FRAMES_PER_BLOCK)))


def begin(solver: CudaSolver, fixture: FlowFixture, num_rows: int, context: int) -> CudaSolve:
    """Whole blocks."""
    return solver.begin(*fixture.batch([FRAMES_PER_BLOCK] * num_rows, context))


def block_ms(solver: CudaSolver, fixture: FlowFixture, num_rows: int, context: int) -> float:
    return batch_ms(solver, fixture, [FRAMES_PER_BLOCK] * num_rows, context)


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


def measure_alone(fixture: FlowFixture) -> dict[int, tuple[float, float, float]]:
    """A block alone, by context: ms with attention as many rows have it, with its own, and with the first again."""
    print("a block alone: frames of context, ms with attention of many rows, its own, of many again")
    figures = {}
    for context in _CONTEXTS_ALONE:
        times = [
            captured_steps_ms(fixture, ops, FRAMES_PER_BLOCK, context) for ops in (_OPS_OF_MANY, STEP_OPS, _OPS_OF_MANY)
        ]
        figures[context] = (times[0], times[1], times[2])
        print(f"{context:8} " + "".join(f"{time:11.3f}" for time in times), flush=True)
    return figures


def captured_steps_ms(fixture: FlowFixture, ops: StepOps, num_frames: int, context: int) -> float:
    """All Euler steps, by these operations, of so many frames: whole blocks, or one that is shorter."""
    buckets = tuple(sorted({num_frames, FRAMES_PER_BLOCK}))
    solver = CudaSolver(fixture.model, fixture.pool, FlowCudaConfig(frame_buckets=buckets, max_batches=1), ops=ops)
    solver.graphs.capture()
    whole, rest = divmod(num_frames, FRAMES_PER_BLOCK)
    return batch_ms(solver, fixture, [FRAMES_PER_BLOCK] * whole or [rest], context)


def begin_once(solver: CudaSolver, streams: Sequence[BlockStream], rows: Sequence[BlockRow]) -> None:
    solver.begin(streams, rows).release()


def measure_blocks(fixture: FlowFixture, kv_dtype: torch.dtype | None) -> dict[str, Any]:
    config = FlowCudaConfig()
    solver = CudaSolver(fixture.model, fixture.pool, config)
    started_s = time.perf_counter()
    solver.graphs.capture()
    capture_s = time.perf_counter() - started_s
    kv_itemsize = (kv_dtype or torch.bfloat16).itemsize
    print(f"captured in {capture_s:.1f} s; keys and values of {kv_itemsize} bytes")
    print("block of 50 frames      " + "".join(f"  B={num_rows:<7}" for num_rows in _BATCHES))
    figures: dict[str, Any] = {"capture_s": capture_s, "num_graphs": solver.graphs.num_graphs}
    for context in CONTEXTS:
        times = {b: block_ms(solver, fixture, b, context) for b in _BATCHES}
        floors = {b: flow_block(FULL_SIZE, b, context, kv_itemsize=kv_itemsize).floor_us() / 1e3 for b in times}
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


def kinds_us(fixture: FlowFixture, batch: BatchView, *, with_products: bool) -> dict[str, float]:
    """Per launch, each kind over all layers one after the other, so that weights and context come from memory.

    Input and output as often, though a step has them once: one launch takes less than the host needs for it.
    """
    tensors, ops = flow_tensors(fixture.model, fixture.pool, is_pdl=True), STEP_OPS
    layers, dim = tensors.layers, tensors.config.dim
    lines = 2 * batch.num_lines
    hidden = torch.randn(2, batch.num_lines, dim, device=DEVICE)
    normed, wide, qkv = (torch.randn(lines, n * dim, device=DEVICE).bfloat16() for n in (1, 2, 3))

    def over_layers(launch: Callable[[int, EstimatorLayer], Any]) -> float:
        def work() -> None:
            for number, layer in enumerate(layers):
                launch(number, layer)

        return captured_us(work) / len(layers)

    figures = {"attend": over_layers(lambda i, _: ops.attend(tensors, batch, qkv, i))}
    if with_products:
        update = ops.update(tensors, wide, layers[0].ff_out_weight, layers[0].ff_out_bias)  # in parts, for few rows
        figures |= {
            "qkv": over_layers(lambda _, w: ops.linear(tensors, normed, w.qkv_weight, w.qkv_bias)),
            "out": over_layers(lambda _, w: ops.update(tensors, normed, w.attn_out_weight, w.attn_out_bias)),
            "ff in, gelu": over_layers(lambda _, w: ops.widen(tensors, normed, w.ff_in_weight, w.ff_in_bias)),
            "ff out": over_layers(lambda _, w: ops.update(tensors, wide, w.ff_out_weight, w.ff_out_bias)),
            "norm": over_layers(
                lambda i, _: ops.norm(tensors, batch, hidden, update=update, gate_row=6 * i + 2, scale_row=6 * i + 3)
            ),
            "embed": over_layers(lambda _, w: ops.embed(tensors, batch, hidden)),
            "euler": over_layers(lambda _, w: ops.euler(tensors, batch, normed)),
        }
    return figures


def measure_kinds(fixture: FlowFixture) -> dict[str, dict[int, tuple[float, float | None]]]:
    """[measured, floor] us per launch; None: no floor."""
    solver = CudaSolver(fixture.model, fixture.pool, FlowCudaConfig(max_batches=1, has_graphs=False))
    figures: dict[str, dict[int, tuple[float, float | None]]] = {}
    for num_rows in _KIND_BATCHES:
        for context in CONTEXTS:
            costs = flow_kernels(FULL_SIZE, num_rows, context)
            solve = begin(solver, fixture, num_rows, context)
            for name, time_us in kinds_us(fixture, solve.view, with_products=context == CONTEXTS[0]).items():
                label = f"attend {context}" if name == "attend" else name
                floor = costs[name].floor_us() if name in costs else None
                figures.setdefault(label, {})[num_rows] = (time_us, floor)
            solve.release()
    print("us per launch, floor" + "".join(f"          B={num_rows:<3}" for num_rows in _KIND_BATCHES))
    for name, pairs in figures.items():
        cells = "".join(f"{time_us:9.2f}{_floor_cell(floor)}" for time_us, floor in pairs.values())
        print(f"{name:20}{cells}", flush=True)
    return figures


def _floor_cell(floor: float | None) -> str:
    return 6 * " " if floor is None else f"{floor:6.2f}"


def measure_float8_products(
    fixture: FlowFixture, batches: Sequence[int] = (8, 12, 18, 34, 52, 84)
) -> dict[str, dict[int, float]]:
    """A block at 450 frames of context with a layer's products in bfloat16 and in float8."""
    frames = tuple(FRAMES_PER_BLOCK * num_rows for num_rows in batches)
    figures = {}
    print("ms per block, products" + "".join(f"     B={num_rows:<3}" for num_rows in batches))
    for dtype in (None, torch.float8_e4m3fn):
        config = FlowCudaConfig(frame_buckets=frames, max_batches=1, product_dtype=dtype, float8_frames=0)
        solver = CudaSolver(fixture.model, fixture.pool, config)
        solver.graphs.capture()
        name = "bfloat16" if dtype is None else "float8"
        figures[name] = {b: block_ms(solver, fixture, b, 450) for b in batches}
        print(f"{name:22}" + "".join(f"{value:10.2f}" for value in figures[name].values()), flush=True)
        del solver
    return figures


def measure_precision() -> dict[str, float]:
    """Root mean square of what rounding does to three blocks of mel, relative to that of the mel itself."""
    noise = torch.randn(units.NUM_MELS, 2_000, device=DEVICE)
    state = random_state_dict(FULL_SIZE)
    config = FlowCudaConfig(frame_buckets=(50,), max_batches=1, has_graphs=False, float8_frames=0)

    def render(
        dtype: torch.dtype, *, kv_dtype: torch.dtype | None = None, product_dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        model = FlowModel(FULL_SIZE, state, device=DEVICE, dtype=dtype, noise=noise)
        pool = make_pool(num_blocks=8, dtype=dtype, kv_dtype=kv_dtype)
        solver = CudaSolver(model, pool, replace(config, product_dtype=product_dtype))
        runner = FlowRunner(model, pool, solver, max_streams=1)
        prompt = FlowPrompt(torch.arange(60), torch.ones(120, units.NUM_MELS), torch.ones(192))
        stream = runner.open(runner.prepare(prompt))
        stream.append(range(75))
        stream.finish()
        mels = []
        while stream.is_ready:
            batch = runner.begin([stream])
            while not batch.advance():
                pass
            mels += batch.result()
        return torch.cat(mels, dim=1)

    exact = render(torch.float32)
    figures = {}
    for name, mel in (
        ("bfloat16", render(torch.bfloat16)),
        ("context in float8", render(torch.bfloat16, kv_dtype=torch.float8_e4m3fn)),
        ("products in float8", render(torch.bfloat16, product_dtype=torch.float8_e4m3fn)),
    ):
        error = (mel - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        figures[name] = error.item()
        print(f"{name}: relative error of mel {error.item():.1e}", flush=True)
    return figures


@torch.inference_mode()
def measure(sections: Sequence[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if {"blocks", "kinds", "float8_products"}.intersection(sections):
        fixture = FlowFixture()
        if "blocks" in sections:
            figures["blocks"] = measure_blocks(fixture, None)
        if "kinds" in sections:
            figures["kinds_us"] = measure_kinds(fixture)
        if "float8_products" in sections:
            figures["float8_products_ms"] = measure_float8_products(fixture)
        del fixture
    if {"alone", "fp8"}.intersection(sections):
        print("context in float8_e4m3fn")
        fixture = FlowFixture(kv_dtype=torch.float8_e4m3fn)
        if "alone" in sections:
            figures["alone_ms"] = measure_alone(fixture)
        if "fp8" in sections:
            figures["fp8"] = measure_blocks(fixture, torch.float8_e4m3fn)
        del fixture
    if "precision" in sections:
        figures["precision"] = measure_precision()
    return figures
