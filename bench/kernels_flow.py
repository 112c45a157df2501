"""The flow's Euler step on a GPU, by batch, by kernel and by switch, at full size with random weights.

python -m bench.kernels_flow [--parts blocks kinds switches fp8 precision] [--output FILE.json]

A block is 50 mel frames, one second of speech: 10 Euler steps of two CFG halves. Floors: bytes of weights and context
over 4.3 TB/s, or operations over 790 TFLOP/s, whichever is longer; both were read on an H200.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from engine import units
from engine.model_config import EstimatorConfig, FlowConfig
from engine.token2wav.flow.block_context import BlockRow
from engine.token2wav.flow.block_pool import BlockPool, bytes_per_block
from engine.token2wav.flow.cuda.config import FlowCudaConfig
from engine.token2wav.flow.cuda.lane import BlockBuffers
from engine.token2wav.flow.cuda.ops import choose_ops
from engine.token2wav.flow.cuda.solver import CudaSolve, CudaSolver
from engine.token2wav.flow.cuda.tensors import flow_tensors
from engine.token2wav.flow.estimator import EstimatorLayer
from engine.token2wav.flow.model import FlowModel
from engine.token2wav.flow.prompt import FlowPrompt, PreparedPrompt, load_prompt
from engine.token2wav.flow.runner import FlowRunner
from engine.token2wav.flow.stream import FlowStream
from engine.token2wav.flow.weights import flow_shapes

FULL_SIZE: Final = FlowConfig(
    vocab_size=6561,
    speaker_dim=192,
    lookahead_tokens=3,
    pre_lookahead_channels=1024,
    cfg_rate=0.7,
    estimator=EstimatorConfig(dim=1024, depth=22, num_heads=16, head_dim=64, ff_mult=2, block_frames=50),
)
DEVICE: Final = torch.device("cuda")
CONTEXTS: Final = (150, 450)  # frames
MEMORY_BYTES_PER_S: Final = 4.3e12
FLOP_PER_S: Final = 790e12
# Per block and stream, FACTS of the released model: new frames, and each of them with one attended frame.
_BLOCK_FLOP: Final = 378.05e6 * 20 * units.FRAMES_PER_BLOCK
_ATTENDED_FLOP: Final = 90.1e6
_WEIGHT_BYTES: Final = 379e6  # bfloat16, without the tabulated modulations; every Euler step
_REPEATS: Final = 7


def random_state_dict(config: FlowConfig) -> dict[str, torch.Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(0)
    return {
        key: torch.randn(shape, device=DEVICE, generator=generator)
        * (0.1 if len(shape) == 1 else torch.Size(shape[1:]).numel() ** -0.5)
        for key, shape in flow_shapes(config).items()
    }


class Fixture:
    """A model with a pool of random context, and batches of streams at any place in it."""

    def __init__(self, *, num_blocks: int, kv_dtype: torch.dtype | None = None) -> None:
        noise = torch.randn(units.NUM_MELS, 2_000, device=DEVICE)
        state = random_state_dict(FULL_SIZE)
        self.model = FlowModel(FULL_SIZE, state, device=DEVICE, dtype=torch.bfloat16, noise=noise)
        self.pool = BlockPool(
            FULL_SIZE.estimator,
            num_steps=FULL_SIZE.num_euler_steps,
            num_blocks=num_blocks,
            device=DEVICE,
            dtype=torch.bfloat16,
            kv_dtype=kv_dtype,
        )
        self.pool.tails.normal_()
        for block in self.pool.keys_values:
            block.copy_(torch.randn(block.shape, device=DEVICE))
        empty = FlowPrompt(torch.empty(0, dtype=torch.int64), torch.empty(0, units.NUM_MELS), torch.randn(192))
        self._prompt: PreparedPrompt = load_prompt(self.model, self.pool, empty)

    def batch(self, num_rows: int, context: int, num_frames: int) -> tuple[list[FlowStream], list[BlockRow]]:
        """Streams with `context` finished frames each, in blocks of their own as far as the pool goes."""
        num_finished = context // units.FRAMES_PER_BLOCK
        streams, rows = [], []
        for i in range(num_rows):
            stream = FlowStream(self.model, self._prompt)
            stream.append(range(num_finished * units.TOKENS_PER_BLOCK + num_frames // units.FRAMES_PER_TOKEN))
            stream.finish()
            first = i * (num_finished + 1)
            blocks = [(first + j) % self.pool.scratch for j in range(num_finished + 1)]
            stream.blocks = blocks[:-1]
            streams.append(stream)
            rows.append(BlockRow(tuple(blocks[:-1]), blocks[-1], num_frames))
        return streams, rows


def events_ms(work: Callable[[], None]) -> float:
    """Median time on the device of one call."""
    times: list[float] = []
    for _ in range(_REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)


def host_ms(work: Callable[[], Any]) -> float:
    """Median time until a call returns, whatever the device does meanwhile."""
    times = []
    for _ in range(_REPEATS):
        torch.cuda.synchronize()
        started_s = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - started_s))
    return median(times)


def floor_ms(num_rows: int, context: int, kv_bytes: int) -> float:
    """Of one block: what memory or arithmetic alone would take."""
    attended = context + units.FRAMES_PER_BLOCK
    kv = num_rows * attended * kv_bytes
    flop = num_rows * (_BLOCK_FLOP + _ATTENDED_FLOP * attended)
    num_bytes = _WEIGHT_BYTES * FULL_SIZE.num_euler_steps + kv
    return 1e3 * max(num_bytes / MEMORY_BYTES_PER_S, flop / FLOP_PER_S)


def begin(solver: CudaSolver, fixture: Fixture, num_rows: int, context: int, num_frames: int) -> CudaSolve:
    return solver.begin(*fixture.batch(num_rows, context, num_frames))


def block_ms(solver: CudaSolver, fixture: Fixture, num_rows: int, context: int, num_frames: int = 50) -> float:
    """All Euler steps of one block."""
    solve = begin(solver, fixture, num_rows, context, num_frames)

    def work() -> None:
        solve.buffers.step.zero_()
        for _ in range(FULL_SIZE.num_euler_steps):
            solve.advance()

    work()
    figure = events_ms(work)
    solve.release()
    return figure


def begin_once(solver: CudaSolver, streams: Sequence[FlowStream], rows: Sequence[BlockRow]) -> None:
    solver.begin(streams, rows).release()


def measure_blocks(fixture: Fixture, kv_dtype: torch.dtype | None) -> dict[str, Any]:
    config = FlowCudaConfig(kv_dtype=kv_dtype)
    solver = CudaSolver(fixture.model, fixture.pool, config)
    started_s = time.perf_counter()
    solver.capture(print)
    torch.cuda.synchronize()
    capture_s = time.perf_counter() - started_s
    kv_bytes = (
        bytes_per_block(
            FULL_SIZE.estimator, num_steps=FULL_SIZE.num_euler_steps, dtype=torch.bfloat16, kv_dtype=kv_dtype
        )
        // units.FRAMES_PER_BLOCK
    )
    print(f"captured in {capture_s:.1f} s; {kv_bytes / 1e6:.2f} MB of context per frame")
    print("block of 50 frames      " + "".join(f"  B={num_rows:<7}" for num_rows in config.batch_buckets))
    figures: dict[str, Any] = {"capture_s": capture_s, "num_graphs": solver.num_graphs}
    for context in CONTEXTS:
        times = {b: block_ms(solver, fixture, b, context) for b in config.batch_buckets}
        shares = {b: floor_ms(b, context, kv_bytes) / times[b] for b in times}
        print(f"context {context}: ms          " + "".join(f"{value:9.2f}  " for value in times.values()))
        print("             of floor   " + "".join(f"{100 * share:8.0f} % " for share in shares.values()), flush=True)
        figures[f"block_ms_context_{context}"] = times
    for num_frames in (16, 32):
        times = {b: block_ms(solver, fixture, b, 450, num_frames) for b in config.batch_buckets}
        print(f"{num_frames} frames, 450: ms      " + "".join(f"{value:9.2f}  " for value in times.values()))
        figures[f"block_ms_frames_{num_frames}"] = times
    for num_rows in (1, config.max_batch):
        streams, rows = fixture.batch(num_rows, 450, 50)
        begin_and_release = partial(begin_once, solver, streams, rows)
        begin_host, begin_device = host_ms(begin_and_release), events_ms(begin_and_release)
        solve = solver.begin(streams, rows)
        advance_host = host_ms(solve.advance)
        frames_host = host_ms(partial(solve.frames, [slice(0, units.FRAMES_PER_BLOCK)] * num_rows))
        solve.release()
        print(
            f"B={num_rows}: begin {begin_device:.3f} ms on the device, {begin_host:.3f} ms of Python; "
            f"advance {advance_host:.3f} ms, result {frames_host:.3f} ms of Python",
            flush=True,
        )
        figures[f"host_ms_{num_rows}"] = {"begin": begin_host, "advance": advance_host, "result": frames_host}
    return figures


def captured_us(work: Callable[[], None]) -> float:
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    return 1e3 * events_ms(graph.replay)


def kinds_us(fixture: Fixture, block: BlockBuffers, *, with_products: bool) -> dict[str, float]:
    """Per launch, each kind over all layers one after the other, so that weights and context come from memory."""
    tensors, ops = flow_tensors(fixture.model, fixture.pool, is_pdl=True), choose_ops(FlowCudaConfig())
    layers, dim = tensors.layers, tensors.config.dim
    lines = 2 * block.num_rows * block.num_frames
    hidden = torch.randn(2, block.num_rows, block.num_frames, dim, device=DEVICE)
    normed, wide, qkv = (torch.randn(lines, n * dim, device=DEVICE).bfloat16() for n in (1, 2, 3))

    def over_layers(launch: Callable[[int, EstimatorLayer], Any]) -> float:
        def work() -> None:
            for number, layer in enumerate(layers):
                launch(number, layer)

        return captured_us(work) / len(layers)

    figures = {"attend": over_layers(lambda i, _: ops.attend(tensors, block, qkv, i))}
    if with_products:
        figures |= {
            "qkv": over_layers(lambda _, w: ops.linear(tensors, normed, w.qkv_weight, w.qkv_bias)),
            "out": over_layers(lambda _, w: ops.linear(tensors, normed, w.attn_out_weight, w.attn_out_bias)),
            "ff in, gelu": over_layers(lambda _, w: ops.widen(tensors, normed, w.ff_in_weight, w.ff_in_bias)),
            "ff out": over_layers(lambda _, w: ops.linear(tensors, wide, w.ff_out_weight, w.ff_out_bias)),
            "norm": over_layers(
                lambda i, _: ops.norm(tensors, block, hidden, update=normed, gate_row=6 * i + 2, scale_row=6 * i + 3)
            ),
            "embed": captured_us(lambda: ops.embed(tensors, block, hidden)),
            "euler": captured_us(lambda: ops.euler(tensors, block, normed)),
        }
    return figures


def measure_kinds(fixture: Fixture) -> dict[str, dict[int, float]]:
    solver = CudaSolver(fixture.model, fixture.pool, FlowCudaConfig(num_lanes=1, use_graphs=False))
    figures: dict[str, dict[int, float]] = {}
    batches = (1, 4, 16, 32)
    for num_rows in batches:
        for context in CONTEXTS:
            solve = begin(solver, fixture, num_rows, context, units.FRAMES_PER_BLOCK)
            for name, time_us in kinds_us(fixture, solve.buffers, with_products=context == CONTEXTS[0]).items():
                label = f"attend {context}" if name == "attend" else name
                figures.setdefault(label, {})[num_rows] = time_us
            solve.release()
    print("us per launch   " + "".join(f"     B={num_rows:<3}" for num_rows in batches))
    for name, times in figures.items():
        print(f"{name:16}" + "".join(f"{value:10.2f}" for value in times.values()), flush=True)
    return figures


def measure_switches(fixture: Fixture, batches: Sequence[int] = (1, 32)) -> dict[str, dict[int, float]]:
    """A block at 450 frames of context with one optimisation off at a time."""
    everything = FlowCudaConfig(batch_buckets=tuple(batches), frame_buckets=(50,), num_lanes=1)
    switches = tuple(name for name in FlowCudaConfig.__slots__ if name.startswith(("use_", "overlap_", "fuse_")))
    figures = {}
    print("ms per block  " + "".join(f"     B={num_rows:<3}" for num_rows in batches))
    for name in ("everything", *switches):
        off: dict[str, Any] = {} if name == "everything" else {name: False}
        config = replace(everything, **off)
        solver = CudaSolver(fixture.model, fixture.pool, config)
        solver.capture(lambda _: None)
        figures[name] = {b: block_ms(solver, fixture, b, 450) for b in batches}
        label = name if name == "everything" else f"no {name.split('_', 1)[1]}"
        print(f"{label:14}" + "".join(f"{value:10.2f}" for value in figures[name].values()), flush=True)
        del solver
    return figures


def measure_precision() -> dict[str, float]:
    """Root mean square of what rounding does to three blocks of mel, relative to that of the mel itself."""
    noise = torch.randn(units.NUM_MELS, 2_000, device=DEVICE)
    state = random_state_dict(FULL_SIZE)

    def render(dtype: torch.dtype, kv_dtype: torch.dtype | None) -> torch.Tensor:
        cuda = FlowCudaConfig(batch_buckets=(1,), num_lanes=1, use_graphs=False, kv_dtype=kv_dtype)
        runner = FlowRunner(
            FULL_SIZE, state, num_blocks=8, max_streams=1, device=DEVICE, dtype=dtype, cuda=cuda, noise=noise
        )
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

    exact = render(torch.float32, None)
    figures = {}
    for kv_dtype in (torch.bfloat16, torch.float8_e4m3fn):
        error = (render(torch.bfloat16, kv_dtype) - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        figures[f"context {kv_dtype}"] = error.item()
        print(f"bfloat16, context {kv_dtype}: relative error of mel {error.item():.1e}", flush=True)
    return figures


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["blocks", "kinds", "switches", "fp8", "precision"])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    num_blocks = 32 * (CONTEXTS[-1] // units.FRAMES_PER_BLOCK + 1)
    fixture = Fixture(num_blocks=num_blocks)
    if "blocks" in arguments.parts:
        figures["blocks"] = measure_blocks(fixture, None)
    if "kinds" in arguments.parts:
        figures["kinds_us"] = measure_kinds(fixture)
    if "switches" in arguments.parts:
        figures["switches_ms"] = measure_switches(fixture)
    del fixture
    if "fp8" in arguments.parts:
        print("context in float8_e4m3fn")
        figures["fp8"] = measure_blocks(
            Fixture(num_blocks=num_blocks, kv_dtype=torch.float8_e4m3fn), torch.float8_e4m3fn
        )
    if "precision" in arguments.parts:
        figures["precision"] = measure_precision()
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
