"""Step-Audio2's flow and vocoder on a GPU at full size with random weights: graphs, milliseconds, memory."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

import torch

from voicegate.bench.kernels.stepaudio2_model import (
    StepAudio2Fixture,
    full_size_flow,
    full_size_model,
    random_weights,
)
from voicegate.bench.kernels.timing import DEVICE, device_ms
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow.bucket_solver import BucketConfig, BucketSolver
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkRow
from voicegate.engine.families.stepaudio2.flow.passes import EulerStep, TorchStep
from voicegate.engine.families.stepaudio2.vocoder.bucket_caller import KERNEL_ROW_BUCKETS, BucketCaller, CallConfig
from voicegate.engine.families.stepaudio2.vocoder.calls import CallRow
from voicegate.engine.families.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.families.stepaudio2.vocoder.resblocks import Resblock, plain_resblock
from voicegate.engine.families.stepaudio2.vocoder.weights import vocoder_shapes
from voicegate.engine.model.config import VocoderConfig

# With kernels of our own, as the engine runs them, and by torch's operations.
SECTIONS: Final = ("flow", "flow_plain", "vocoder", "vocoder_plain")

_BUCKETS: Final = BucketConfig(
    token_buckets=(12, 27, 52), row_buckets=(1, 2, 4, 8, 16, 32), known_buckets=(512, 1_024), max_batches=1
)
_CALLS: Final = CallConfig(row_buckets=(1, 4, 16, 32))
_KERNEL_CALLS: Final = CallConfig(row_buckets=KERNEL_ROW_BUCKETS)
_CALL_ROWS: Final = (1, 4, 16, 32)

_PRECISIONS: Final = {
    "vocoder": ("float16", "tf32", "float32"),
    "vocoder_plain": ("tf32",),
}

Timer = Callable[[Callable[[], object]], float]  # -> milliseconds of a call
MakeStep = Callable[[StepAudio2Fixture], EulerStep]


def measure(sections: Sequence[str]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for section in sections:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        results[section] = _measured(section)
        results[section]["peak_gib"] = round(torch.cuda.max_memory_reserved() / (1 << 30), 2)
        print(f"{section}: {results[section]['peak_gib']} GiB reserved at the most")
    return results


def _measured(section: str) -> dict[str, Any]:
    if section.startswith("vocoder"):
        return {name: _vocoder(section, name) for name in _PRECISIONS[section]}
    fixture = StepAudio2Fixture(
        full_size_flow(),
        num_rows=_BUCKETS.row_buckets[-1],
        num_known=_BUCKETS.known_buckets[-1],
        device=DEVICE,
        dtype=torch.bfloat16,
        kv_dtype=torch.float8_e4m3fn,
    )
    make_step = {"flow": fused_step, "flow_plain": plain_step}[section]
    return flow(fixture, _BUCKETS, make_step, name=section, timed_ms=device_ms)


def _vocoder(section: str, precision: str) -> dict[str, Any]:
    """In the precision that `--vocoder-precision` has by that name."""
    loaded = vocoder_model(fused_resblock() if section == "vocoder" else plain_resblock, DEVICE)
    name = f"{section}, {precision}"
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    caller = kernel_caller(loaded, precision) if precision == "float16" else BucketCaller(loaded, _CALLS)
    return vocoder(caller, _CALL_ROWS, _CALLS.frame_buckets, name=name, timed_ms=device_ms)


def kernel_caller(loaded: StepAudio2Vocoder, precision: str) -> BucketCaller:
    from voicegate.engine.families.stepaudio2.vocoder.cuda.kernel_decoder import (  # noqa: PLC0415 - as below
        kernel_decoder,
    )

    num_multiprocessors = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    decode = kernel_decoder(loaded, _KERNEL_CALLS, precision, num_multiprocessors=num_multiprocessors)
    return BucketCaller(loaded, _KERNEL_CALLS, decode=decode)


def fused_step(fixture: StepAudio2Fixture) -> EulerStep:
    from voicegate.engine.families.stepaudio2.flow.cuda.step import FusedStep  # noqa: PLC0415 - Triton is optional

    return FusedStep(fixture.model, fixture.memory)


def plain_step(fixture: StepAudio2Fixture) -> EulerStep:
    return TorchStep(fixture.model, fixture.memory)


def flow(
    fixture: StepAudio2Fixture, buckets: BucketConfig, make_step: MakeStep, *, name: str, timed_ms: Timer
) -> dict[str, Any]:
    """Milliseconds of a batch's beginning, and with its Euler steps, by rows x tokens of a chunk x frames known."""
    solver = BucketSolver(fixture.model, fixture.memory, buckets, step=make_step(fixture))
    solver.graphs.capture()
    num_steps = fixture.model.schedule.num_steps
    results: dict[str, Any] = {"num_graphs": solver.graphs.num_graphs}
    for rows, tokens, frames in product(buckets.row_buckets, buckets.token_buckets, buckets.known_buckets):
        batch = fixture.rows([frames] * rows, [tokens] * rows)

        def begin(batch: Sequence[ChunkRow] = batch) -> None:
            solver.begin(batch).release()

        def block(batch: Sequence[ChunkRow] = batch) -> None:
            solve = solver.begin(batch)
            for _ in range(num_steps):
                solve.advance()
            solve.release()

        begin_ms, block_ms = timed_ms(begin), timed_ms(block)
        step_ms = (block_ms - begin_ms) / num_steps
        label = f"{rows} x {tokens} behind {frames}"
        results[label] = {
            "begin_ms": round(begin_ms, 3),
            "block_ms": round(block_ms, 3),
            "step_ms": round(step_ms, 4),
        }
        print(f"{name}, {label}: begin {begin_ms:.2f} ms, with all Euler steps {block_ms:.2f} ms", flush=True)
    return results


def fused_resblock() -> Resblock:
    from voicegate.engine.families.stepaudio2.vocoder.cuda import fused_resblock as fused  # noqa: PLC0415 - as above

    return fused.fused_resblock


def vocoder_model(resblock: Resblock, device: torch.device, config: VocoderConfig | None = None) -> StepAudio2Vocoder:
    """With random weights; `config`: None for the released size."""
    config = config or full_size_model().vocoder
    max_frames = 1_000
    return StepAudio2Vocoder(
        config,
        random_weights(vocoder_shapes(config), device),
        max_samples=max_frames * units.SAMPLES_PER_FRAME,
        device=device,
        resblock=resblock,
    )


def vocoder(
    caller: BucketCaller, row_counts: Sequence[int], frame_counts: Sequence[int], *, name: str, timed_ms: Timer
) -> dict[str, Any]:
    """Milliseconds of all calls that so many rows take, with all that is copied for them, by rows x frames."""
    caller.graphs.capture()
    results: dict[str, Any] = {"num_graphs": caller.graphs.num_graphs}
    for num_rows, num_frames in product(row_counts, frame_counts):
        mel = torch.randn(units.NUM_MELS, num_frames, device=caller.device)
        rows = [CallRow(mel, 0) for _ in range(num_rows)]
        call_ms = timed_ms(lambda rows=rows: caller.run(rows))  # type: ignore[misc]
        results[f"{num_rows} x {num_frames}"] = round(call_ms, 3)
        print(f"{name}, {num_rows} x {num_frames} frames: {call_ms:.2f} ms", flush=True)
    return results
