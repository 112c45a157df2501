"""Step-Audio2's flow and vocoder on a GPU at full size with random weights: graphs, milliseconds, memory."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
import torch

from voicegate.bench.full_size.stepaudio2 import StepAudio2Sizes, stepaudio2_raw_json
from voicegate.bench.kernels.timing import DEVICE, device_ms
from voicegate.engine import units
from voicegate.engine.checkpoint.options import Decoding
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import parse_model_config
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.model.weights import Shape
from voicegate.engine.token2wav.stepaudio2.flow import memory
from voicegate.engine.token2wav.stepaudio2.flow.bucket_solver import BucketConfig, BucketSolver
from voicegate.engine.token2wav.stepaudio2.flow.chunk_buffers import ChunkRow, Tails
from voicegate.engine.token2wav.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.token2wav.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.token2wav.stepaudio2.flow.weights import flow_shapes
from voicegate.engine.token2wav.stepaudio2.vocoder.bucket_caller import BucketCaller, CallConfig
from voicegate.engine.token2wav.stepaudio2.vocoder.calls import CallRow
from voicegate.engine.token2wav.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.token2wav.stepaudio2.vocoder.weights import vocoder_shapes

SECTIONS: Final = ("flow", "vocoder")

_BUCKETS: Final = BucketConfig(token_buckets=(12, 27, 52), row_buckets=(1, 4, 16, 32), known_buckets=(512, 1_024))
_CALLS: Final = CallConfig(row_buckets=(1, 4, 16, 32))
_LOOKAHEAD_TOKENS: Final = 3

Timer = Callable[[Callable[[], object]], float]  # -> milliseconds of a call


def measure(sections: Sequence[str]) -> dict[str, Any]:
    model = parse_model_config(
        stepaudio2_raw_json(StepAudio2Sizes(), name="full size", decoding=Decoding.ORIGINAL), name="full size"
    )
    measured: dict[str, Callable[[], dict[str, Any]]] = {
        "flow": lambda: flow(model, _BUCKETS, device=DEVICE, dtype=torch.bfloat16, timed_ms=device_ms),
        "vocoder": lambda: vocoder(model, _CALLS, device=DEVICE, timed_ms=device_ms),
    }
    results: dict[str, Any] = {}
    for section in sections:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        results[section] = measured[section]()
        results[section]["peak_gib"] = round(torch.cuda.max_memory_reserved() / (1 << 30), 2)
        print(f"{section}: {results[section]['peak_gib']} GiB reserved at the most")
    return results


def flow(
    model: ModelConfig, buckets: BucketConfig, *, device: torch.device, dtype: torch.dtype, timed_ms: Timer
) -> dict[str, Any]:
    """Milliseconds of a batch's beginning, and with its Euler steps, by rows x tokens of a chunk x frames known."""
    config = model.flow
    assert isinstance(config, StepAudio2FlowConfig)
    loaded = StepAudio2Flow(config, _random(flow_shapes(config), device), device=device, dtype=dtype)
    known, num_rows = buckets.known_buckets[-1], buckets.row_buckets[-1]
    pool = FlowMemory(config, num_blocks=num_rows * memory.num_blocks(known), device=device, dtype=dtype)
    for kept in (pool.estimator, pool.tokens, pool.frames):
        kept.normal_()
    solver = BucketSolver(loaded, pool, buckets)
    solver.graphs.capture()
    results: dict[str, Any] = {"num_graphs": solver.graphs.num_graphs}
    for rows, tokens, frames in product(buckets.row_buckets, buckets.token_buckets, buckets.known_buckets):
        batch = list(_rows(loaded, pool, rows, tokens, frames))

        def begin(batch: Sequence[ChunkRow] = batch) -> None:
            solver.begin(batch).release()

        def block(batch: Sequence[ChunkRow] = batch) -> None:
            solve = solver.begin(batch)
            for _ in range(config.num_euler_steps):
                solve.advance()
            solve.release()

        begin_ms, block_ms = timed_ms(begin), timed_ms(block)
        name = f"{rows} x {tokens} behind {frames}"
        results[name] = {"begin_ms": round(begin_ms, 3), "block_ms": round(block_ms, 3)}
        print(f"flow, {name}: begin {begin_ms:.2f} ms, with all Euler steps {block_ms:.2f} ms", flush=True)
    return results


def vocoder(model: ModelConfig, calls: CallConfig, *, device: torch.device, timed_ms: Timer) -> dict[str, Any]:
    """Milliseconds of a call with all that is copied for it, by rows x frames."""
    max_frames = 1_000
    loaded = StepAudio2Vocoder(
        model.vocoder,
        _random(vocoder_shapes(model.vocoder), device),
        max_samples=max_frames * units.SAMPLES_PER_FRAME,
        device=device,
    )
    caller = BucketCaller(loaded, calls)
    caller.graphs.capture()
    results: dict[str, Any] = {"num_graphs": caller.graphs.num_graphs}
    for num_rows, num_frames in product(calls.row_buckets, calls.frame_buckets):
        rows = [CallRow(torch.randn(units.NUM_MELS, num_frames, device=device), 0) for _ in range(num_rows)]
        call_ms = timed_ms(lambda rows=rows: caller.run(rows))  # type: ignore[misc]
        results[f"{num_rows} x {num_frames}"] = round(call_ms, 3)
        print(f"vocoder, {num_rows} x {num_frames} frames: {call_ms:.2f} ms", flush=True)
    return results


def _rows(model: StepAudio2Flow, pool: FlowMemory, num_rows: int, num_tokens: int, known: int) -> Iterator[ChunkRow]:
    """Each behind a context of its own."""
    blocks = memory.num_blocks(known)
    tails = Tails.before_first(model.config, device=model.device, dtype=model.dtype)
    for row in range(num_rows):
        places = pool.places_of(range(row * blocks, (row + 1) * blocks))[:known]
        yield ChunkRow(
            window=np.arange(num_tokens + _LOOKAHEAD_TOKENS).tolist(),
            num_tokens=num_tokens,
            noise_start=0,
            known=places,
            context=places,
            tails=tails,
            speaker_bias=torch.randn(model.config.estimator.dim, device=model.device),
        )


def _random(shapes: dict[str, Shape], device: torch.device) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    return {
        name: torch.randn(shape, device=device, generator=generator)
        * (0.1 if len(shape) == 1 else torch.Size(shape[1:]).numel() ** -0.5)
        for name, shape in shapes.items()
    }
