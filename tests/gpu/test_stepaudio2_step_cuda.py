"""The second family's Euler step by kernels, at the released size with random weights, against torch's operations.

What bfloat16 and 8-bit contexts cost either way is printed: run with -s.
"""

from functools import cache

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tests.support.stepaudio2_full_size import StepAudio2Fixture, full_size_flow
from voicegate.engine.families.stepaudio2.flow.bucket_solver import BucketConfig, BucketSolver
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers, ChunkRow, ChunkShape
from voicegate.engine.families.stepaudio2.flow.cuda.step import FusedStep
from voicegate.engine.families.stepaudio2.flow.passes import ChunkPasses, EulerStep, TorchStep

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CUDA = torch.device("cuda")
NUM_KNOWN = 520
# Frames that a row ends with, tokens of its chunk: a first one alone, whose products are all Triton's, without context
# and with; ages and lengths together; and a batch whose products are all cuBLAS's, whose contexts are not split.
ALONE = ((24, 12),)
FIRST = ((257, 12),)
MIXED = ((104, 52), (520, 27), (299, 1))
MANY = tuple((104 + 13 * row, 52) for row in range(16))
Rows = tuple[tuple[int, int], ...]


@cache
def fixture(dtype: torch.dtype, kv_dtype: torch.dtype) -> StepAudio2Fixture:
    return StepAudio2Fixture(
        full_size_flow(), num_rows=len(MANY), num_known=NUM_KNOWN, device=CUDA, dtype=dtype, kv_dtype=kv_dtype
    )


def chunk_rows(parts: StepAudio2Fixture, rows: Rows) -> list[ChunkRow]:
    return parts.rows([known for known, _ in rows], [tokens for _, tokens in rows])


def solved(parts: StepAudio2Fixture, rows: Rows, step: EulerStep) -> list[torch.Tensor]:
    """Mel of each row, [80, n], after all steps, amid a padding row; behind contexts that no one before has changed."""
    parts.draw_context()
    batch = chunk_rows(parts, rows)
    shape = ChunkShape(len(rows) + 1, max(row.num_tokens for row in batch), NUM_KNOWN)
    buffers = ChunkBuffers(parts.model, parts.memory, shape)
    buffers.fill(batch)
    passes = ChunkPasses(parts.model, parts.memory, step)
    passes.begin(buffers)
    for _ in range(parts.model.schedule.num_steps):
        passes.advance(buffers)
    return [buffers.mel(index, row.num_frames) for index, row in enumerate(batch)]


def error(mels: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """RMS, of all rows."""
    differences = torch.cat([(mel - expected).flatten() for mel, expected in zip(mels, exact, strict=True)])
    return float(differences.square().mean().sqrt())


@pytest.mark.parametrize("rows", [ALONE, FIRST, MIXED, MANY], ids=["alone", "first", "mixed", "many"])
def test_float32_is_the_plain_step(rows: Rows) -> None:
    parts = fixture(torch.float32, torch.float32)
    plain = solved(parts, rows, TorchStep(parts.model, parts.memory))
    fused = solved(parts, rows, FusedStep(parts.model, parts.memory))
    for actual, expected in zip(fused, plain, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=2e-4 * float(expected.std()))


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=["bfloat16", "float8"])
@pytest.mark.parametrize("rows", [ALONE, FIRST, MIXED, MANY], ids=["alone", "first", "mixed", "many"])
def test_half_precision_is_no_worse_than_the_plain_step(rows: Rows, kv_dtype: torch.dtype) -> None:
    exact_parts, parts = fixture(torch.float32, torch.float32), fixture(torch.bfloat16, kv_dtype)
    exact = solved(exact_parts, rows, TorchStep(exact_parts.model, exact_parts.memory))
    plain = error(solved(parts, rows, TorchStep(parts.model, parts.memory)), exact)
    fused = error(solved(parts, rows, FusedStep(parts.model, parts.memory)), exact)
    deviation = float(torch.cat([mel.flatten() for mel in exact]).std())
    print(f"\nRMS error of {deviation:.2f}: by torch's operations {plain:.1e}, by kernels {fused:.1e}")
    assert fused < 1.2 * plain


def test_graphs_are_what_eager_is_to_the_bit() -> None:
    parts = fixture(torch.bfloat16, torch.float8_e4m3fn)
    mels = []
    for has_graphs in (False, True):
        buckets = BucketConfig(
            (12, 52), row_buckets=(1, 4), known_buckets=(NUM_KNOWN,), max_batches=1, has_graphs=has_graphs
        )
        solver = BucketSolver(parts.model, parts.memory, buckets, step=FusedStep(parts.model, parts.memory))
        solver.graphs.capture()
        for rows in (FIRST, MIXED, FIRST):
            parts.draw_context()
            solve = solver.begin(chunk_rows(parts, rows))
            for _ in range(parts.model.schedule.num_steps):
                solve.advance()
            mels.append([solve.mel(index) for index in range(len(rows))])
            solve.release()
    for eager, replayed in zip(mels[:3], mels[3:], strict=True):
        for actual, expected in zip(replayed, eager, strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("rows", [FIRST, MANY], ids=["first", "many"])
def test_a_step_is_few_launches(rows: Rows) -> None:
    """cuBLAS may add a kernel where it splits a product's inputs."""
    parts = fixture(torch.bfloat16, torch.float8_e4m3fn)
    batch = chunk_rows(parts, rows)
    counts = {}
    for step in (TorchStep(parts.model, parts.memory), FusedStep(parts.model, parts.memory)):
        buffers = ChunkBuffers(parts.model, parts.memory, ChunkShape.of(batch))
        buffers.fill(batch)
        passes = ChunkPasses(parts.model, parts.memory, step)
        passes.begin(buffers)
        passes.advance(buffers)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            passes.advance(buffers)
            torch.cuda.synchronize()
        counts[type(step)] = sum(event.device_type == DeviceType.CUDA for event in profiler.events())
    print(f"\n{len(rows)} rows: {counts[TorchStep]} kernels by torch's operations, {counts[FusedStep]} of our own")
    assert counts[FusedStep] <= 230
    assert counts[TorchStep] > 3 * counts[FusedStep]
