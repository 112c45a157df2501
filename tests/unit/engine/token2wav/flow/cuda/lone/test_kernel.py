"""attend.cu's programs on a CPU (support/cuda_emulator.py) against torch's operations in float32."""

from collections.abc import Sequence

import pytest
import torch

from tests.support import flow_reference
from tests.support.cuda_emulator import EmulatedKernel
from tests.unit.engine.token2wav.flow.cuda.support import Bench, Row
from voicegate.engine.token2wav.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.token2wav.flow.cuda.lone.arguments import (
    HEAD_DIM,
    KERNEL,
    MACROS,
    SHARED_MEMORY_BYTES,
    arguments_of,
    can_attend,
    programs_of,
)

pytestmark = pytest.mark.unit

FLOAT8 = torch.float8_e4m3fn


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernel:
    return EmulatedKernel(KERNEL, tmp_path_factory.mktemp("emulated"), macros=MACROS)


def bench_of(rows: Sequence[Row], dtype: torch.dtype = torch.bfloat16, *, num_padding: int = 0, step: int = 1) -> Bench:
    return Bench(
        list(rows),
        num_rows=len(rows) + (num_padding > 0),
        num_lines=sum(row.num_frames for row in rows) + num_padding,
        step=step,
        dtype=dtype,
        kv_dtype=FLOAT8,
        head_dim=HEAD_DIM,
        num_blocks=16,
    )


def random_qkv(bench: Bench) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    width = 3 * bench.config.num_heads * bench.config.head_dim
    return torch.randn(2 * bench.batch.num_lines, width, generator=generator).bfloat16()


def attended(kernel: EmulatedKernel, bench: Bench, qkv: torch.Tensor, *, layer: int = 1, seed: int = 1) -> torch.Tensor:
    """The programs begin while the product is not there."""
    late = torch.full_like(qkv, torch.nan)
    out = torch.full((len(qkv), qkv.shape[1] // 3), torch.nan, dtype=torch.bfloat16)
    kernel.launch(
        arguments_of(bench.tensors, bench.batch, late, layer, out=out),
        programs_of(bench.tensors, bench.batch),
        shared_memory_bytes=SHARED_MEMORY_BYTES,
        seed=seed,
        num_together=8,
        late=(late, qkv),
    )
    num_lines = sum(row.num_frames for row in bench.rows)
    assert out.view(2, bench.batch.num_lines, -1)[:, num_lines:].isnan().all()  # nothing is stored for padding
    return valid(bench, out)


def valid(bench: Bench, lines: torch.Tensor) -> torch.Tensor:
    return lines.view(2, bench.batch.num_lines, -1)[:, : sum(row.num_frames for row in bench.rows)].float()


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    # Head 0 is rounded to bfloat16 between, and its scores are large: nothing scales random queries.
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02 * float(expected.abs().max()))
    assert (found - expected).square().mean() < (0.005 * expected.square().mean().sqrt()).square()


@pytest.mark.parametrize(
    ("rows", "num_padding", "step", "layer"),
    [
        pytest.param([Row(0, 14)], 0, 1, 1, id="nothing before, short"),
        pytest.param([Row(2, 50)], 0, 0, 1, id="whole"),
        pytest.param([Row(1, 34, prompt_tokens=28)], 16, 1, 0, id="a last block"),
        pytest.param([Row(10, 50)], 0, 1, 1, id="a warp with a block and a share"),
        pytest.param([Row(14, 50)], 0, 1, 0, id="more blocks than warps"),
        pytest.param([Row(2, 34), Row(1, 50), Row(0, 20)], 4, 1, 1, id="many rows, of which one is padding"),
    ],
)
def test_attention_and_what_it_writes_to_the_pool(
    kernel: EmulatedKernel, rows: list[Row], num_padding: int, step: int, layer: int
) -> None:
    bench, exact = (
        bench_of(rows, dtype, num_padding=num_padding, step=step) for dtype in (torch.bfloat16, torch.float32)
    )
    qkv = random_qkv(bench)
    expected = valid(exact, flow_reference.attend(exact.tensors, exact.batch, qkv.float(), layer))
    assert_near(attended(kernel, bench, qkv, layer=layer), expected)

    memory = bench.pool.keys_values.float()
    for row, exact_row in zip(bench.rows, exact.rows, strict=True):
        if row.num_frames == FRAMES_PER_BLOCK:
            kept = memory[row.block, step, layer].clone()
            assert_kept(kept, exact.pool.keys_values.float()[exact_row.block, step, layer], bench.config.num_heads)
            memory[row.block, step, layer] = torch.nan
        assert memory[row.block].isnan().all()  # nobody will read what is shorter, nor other steps' and layers'


def assert_kept(kept: torch.Tensor, expected: torch.Tensor, num_heads: int) -> None:
    is_rotated = torch.zeros_like(kept, dtype=torch.bool)
    is_rotated[0, ::num_heads] = True  # head 0's keys, rounded to bfloat16 between
    assert torch.equal(kept[~is_rotated], expected[~is_rotated])
    torch.testing.assert_close(kept[is_rotated], expected[is_rotated], rtol=0.13, atol=0.002)


def test_scores_far_below_zero(kernel: EmulatedKernel) -> None:
    """All of them: what a softmax begins with has to be less."""
    bench, exact = bench_of([Row(0, 14)]), bench_of([Row(0, 14)], torch.float32)
    width = bench.config.num_heads * HEAD_DIM
    qkv = random_qkv(bench) / 16
    qkv[:, width : 2 * width] += 2
    qkv[:, :width] -= 2
    expected = valid(exact, flow_reference.attend(exact.tensors, exact.batch, qkv.float(), 1))
    found = attended(kernel, bench, qkv)
    assert_near(found[:, :, HEAD_DIM:], expected[:, :, HEAD_DIM:])  # head 0's are turned, and so above zero too


def test_no_order_of_threads_changes_a_bit(kernel: EmulatedKernel) -> None:
    bench = bench_of([Row(2, 50)])
    qkv = random_qkv(bench)
    first, second = (attended(kernel, bench, qkv, seed=seed) for seed in (2, 3))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("num_rows", "dtype", "kv_dtype", "head_dim", "expected"),
    [
        (1, torch.bfloat16, FLOAT8, HEAD_DIM, True),
        (2, torch.bfloat16, FLOAT8, HEAD_DIM, False),
        (1, torch.float32, FLOAT8, HEAD_DIM, False),
        (1, torch.bfloat16, None, HEAD_DIM, False),
        (1, torch.bfloat16, FLOAT8, 32, False),
    ],
)
def test_what_it_is_for(
    num_rows: int, dtype: torch.dtype, kv_dtype: torch.dtype | None, head_dim: int, *, expected: bool
) -> None:
    bench = Bench(
        [Row(1, 50)] * num_rows, num_rows=num_rows, num_lines=100, dtype=dtype, kv_dtype=kv_dtype, head_dim=head_dim
    )
    qkv = torch.empty(200, 3, dtype=dtype)
    assert can_attend(bench.tensors, bench.batch, qkv, out=torch.empty(200, 1, dtype=dtype)) is expected
