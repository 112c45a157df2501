"""attend.cu's programs on a CPU (support/cuda_emulator.py) against torch's operations in float32."""

import pytest
import torch

from tests.support import flow_reference
from tests.support.cuda_emulator import EmulatedKernel
from tests.unit.engine.token2wav.flow.cuda.support import Bench, Row
from voicegate.engine.token2wav.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.token2wav.flow.cuda.few.arguments import (
    HEAD_DIM,
    KERNEL,
    SHARED_MEMORY_BYTES,
    arguments_of,
    can_attend,
    programs_of,
)

pytestmark = pytest.mark.unit

FLOAT8 = torch.float8_e4m3fn
LAYER, STEP = 1, 1


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernel:
    return EmulatedKernel(KERNEL, tmp_path_factory.mktemp("emulated"), macros={})


def bench_of(row: Row, dtype: torch.dtype, *, num_padding: int) -> Bench:
    return Bench(
        [row],
        num_rows=1,
        num_lines=row.num_frames + num_padding,
        step=STEP,
        dtype=dtype,
        kv_dtype=FLOAT8,
        head_dim=HEAD_DIM,
    )


def random_qkv(bench: Bench) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    width = 3 * bench.config.num_heads * bench.config.head_dim
    return torch.randn(2 * bench.batch.num_lines, width, generator=generator).bfloat16()


def attended(kernel: EmulatedKernel, bench: Bench, qkv: torch.Tensor, *, seed: int) -> torch.Tensor:
    out = torch.full((len(qkv), qkv.shape[1] // 3), torch.nan, dtype=torch.bfloat16)
    assert can_attend(bench.tensors, bench.batch, qkv, out=out)
    kernel.launch(
        arguments_of(bench.tensors, bench.batch, qkv, LAYER, out=out),
        programs_of(bench.tensors, bench.batch),
        shared_memory_bytes=SHARED_MEMORY_BYTES,
        seed=seed,
        num_together=8,
    )
    return valid(bench, out)


def valid(bench: Bench, lines: torch.Tensor) -> torch.Tensor:
    return lines.view(2, bench.batch.num_lines, -1)[:, : bench.rows[0].num_frames]


@pytest.mark.parametrize(
    ("row", "num_padding"),
    [
        pytest.param(Row(0, 14), 2, id="nothing before, short"),
        pytest.param(Row(2, 50), 0, id="whole"),
        pytest.param(Row(1, 34, prompt_tokens=28), 16, id="a last block"),
        pytest.param(Row(11, 50), 0, id="more blocks than warps"),
    ],
)
def test_attention_and_what_it_writes_to_the_pool(kernel: EmulatedKernel, row: Row, num_padding: int) -> None:
    bench, exact = (bench_of(row, dtype, num_padding=num_padding) for dtype in (torch.bfloat16, torch.float32))
    qkv = random_qkv(bench)
    expected = valid(exact, flow_reference.attend(exact.tensors, exact.batch, qkv.float(), LAYER))
    found = attended(kernel, bench, qkv, seed=1).float()
    # Head 0 is rounded to bfloat16 between, and its scores are large: nothing scales random queries.
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02 * float(expected.abs().max()))
    assert (found - expected).square().mean() < (0.005 * expected.square().mean().sqrt()).square()

    memory = bench.pool.keys_values.float()[bench.rows[0].block]
    if row.num_frames < FRAMES_PER_BLOCK:
        assert memory.isnan().all()  # nobody will read it
        return
    kept, expected_kept = memory[STEP, LAYER], exact.pool.keys_values.float()[exact.rows[0].block, STEP, LAYER]
    is_rotated = torch.zeros_like(kept, dtype=torch.bool)
    is_rotated[0, :: bench.config.num_heads] = True  # head 0's keys, rounded to bfloat16 between
    assert torch.equal(kept[~is_rotated], expected_kept[~is_rotated])
    torch.testing.assert_close(kept[is_rotated], expected_kept[is_rotated], rtol=0.13, atol=0.002)
    memory[STEP, LAYER] = torch.nan
    assert memory.isnan().all()


def test_no_order_of_threads_changes_a_bit(kernel: EmulatedKernel) -> None:
    bench = bench_of(Row(2, 50), torch.bfloat16, num_padding=0)
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
