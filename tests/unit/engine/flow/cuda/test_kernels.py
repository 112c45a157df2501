"""Each Triton kernel against the same step in torch's operations; in Triton's interpreter where there is no GPU."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import flow_reference
from tests.unit.engine.flow.cuda.support import Bench, Row
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda import float8_linear, fused_attention, fused_linear, fused_ops
from voicegate.engine.flow.cuda.estimator import FixedShapeEstimator
from voicegate.engine.flow.cuda.fused_attention import AttendTile
from voicegate.engine.flow.cuda.ops import STEP_OPS
from voicegate.engine.flow.cuda.tensors import in_float8

pytestmark = [
    # Padding rows and lines are computed with whatever is there, as on a GPU; nobody looks at what comes of it.
    pytest.mark.usefixtures("any_arithmetic"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="CPU tensors; tests/gpu runs the kernels on CUDA"),
]

# Ragged: no history and a short block, some, and a prompt that ends within the block; then a whole block in between.
# There is one padding row, and there are padding lines.
ROWS = [Row(0, 14), Row(2, 16), Row(1, 10, prompt_tokens=28)]
MIXED_ROWS = [Row(2, 6), Row(1, 50), Row(0, 44)]
FLOAT8 = torch.float8_e4m3fn
# Half precision as float16: the interpreter multiplies bfloat16 as integers.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3}


@pytest.fixture
def any_arithmetic() -> Iterator[None]:
    """The interpreter is numpy, which would warn."""
    with np.errstate(all="ignore"):
        yield


def benches(rows: list[Row], *, num_padding: int = 1, **kwargs: Any) -> Iterator[Bench]:
    """Two alike, one for each implementation."""
    num_lines = sum(row.num_frames for row in rows) + 4 * num_padding
    for _ in range(2):
        yield Bench(rows, num_rows=len(rows) + num_padding, num_lines=num_lines, **kwargs)


def random_lines(bench: Bench, width: int, *, dtype: torch.dtype) -> torch.Tensor:
    num_lines = bench.batch.num_lines
    generator = torch.Generator().manual_seed(9)
    return torch.randn(2 * num_lines, width, generator=generator).to(dtype)


def valid(bench: Bench, tensor: torch.Tensor) -> torch.Tensor:
    """The lines that anybody will look at of [C, L, ...]: padding is behind them."""
    num_lines = sum(row.num_frames for row in bench.rows)
    return tensor.view(2, bench.batch.num_lines, -1)[:, :num_lines].flatten()


def written_to(bench: Bench, memory: torch.Tensor) -> torch.Tensor:
    """Contents of whole blocks' memory; others' is still poison."""
    whole = [row.block for row in bench.rows if row.num_frames == FRAMES_PER_BLOCK]
    assert memory[[row.block for row in bench.rows if row.block not in whole]].isnan().all()
    return memory[whole]


def assert_near(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    assert expected.isfinite().all()
    torch.testing.assert_close(actual.float(), expected.float(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_embed_and_the_tails_it_keeps() -> None:
    hiddens, tails = [], []
    for bench, embed in zip(benches([Row(2, 14), Row(1, 50)]), (flow_reference.embed, fused_ops.embed), strict=True):
        hidden = torch.empty(2, bench.batch.num_lines, bench.config.dim)
        embed(bench.tensors, bench.batch, hidden)
        hiddens.append(valid(bench, hidden))
        tails.append(written_to(bench, bench.pool.tails))
    assert_near(hiddens[1], hiddens[0])
    assert_near(tails[1][:, 1], tails[0][:, 1])
    assert tails[1][:, 0].isnan().all()  # of the other Euler step


@pytest.mark.parametrize("num_parts", [0, pytest.param(1, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norm(num_parts: int, dtype: torch.dtype) -> None:
    results = []
    for bench, norm in zip(benches(ROWS, dtype=dtype), (flow_reference.norm, fused_ops.norm), strict=True):
        dim = bench.config.dim
        hidden = (100 * random_lines(bench, dim, dtype=torch.float32)).view(2, -1, dim)
        parts = [random_lines(bench, dim, dtype=dtype).roll(i) for i in range(num_parts)]
        update = torch.cat(parts) if parts else None
        out = norm(bench.tensors, bench.batch, hidden, update=update, gate_row=5, scale_row=6)
        assert out.dtype == dtype
        results.append((out, hidden))
    assert_near(results[1][0], results[0][0], dtype)
    assert_near(results[1][1], results[0][1])


def attend_in_splits(splits: int) -> Callable[..., torch.Tensor]:
    """More splits than blocks leave some without any."""
    tile = AttendTile(splits=splits, prefetch=0, num_stages=1, num_warps=4)
    return partial(fused_attention.attend, tile=tile)


@pytest.mark.parametrize("splits", [1, 2, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [ROWS, MIXED_ROWS])
def test_attention_and_what_it_writes_to_the_pool(rows: list[Row], dtype: torch.dtype, splits: int) -> None:
    results = []
    ops = flow_reference.attend, attend_in_splits(splits)
    for bench, attend in zip(benches(rows, dtype=dtype), ops, strict=True):
        qkv = random_lines(bench, 3 * bench.config.num_heads * bench.config.head_dim, dtype=dtype)
        attended = attend(bench.tensors, bench.batch, qkv, 1)
        results.append((valid(bench, attended), written_to(bench, bench.pool.keys_values)[:, 1, 1]))
        assert all(bench.pool.keys_values[row.block, 0].isnan().all() for row in bench.rows)
    assert_near(results[1][0], results[0][0], dtype)
    assert_near(results[1][1], results[0][1], dtype)


@pytest.mark.parametrize("splits", [1, 2])
def test_attention_over_8_bit_context(splits: int) -> None:
    results = []
    for bench, attend in zip(
        benches(MIXED_ROWS, dtype=torch.float16, kv_dtype=torch.float8_e4m3fn),
        (flow_reference.attend, attend_in_splits(splits)),
        strict=True,
    ):
        # Representable in 8 bits, all but head 0's rotated keys: the interpreter loses a carry where it rounds.
        qkv = random_lines(bench, 3 * bench.config.num_heads * bench.config.head_dim, dtype=torch.float16)
        qkv = qkv.to(torch.float8_e4m3fn).to(torch.float16)
        attended = attend(bench.tensors, bench.batch, qkv, 0)
        written = written_to(bench, bench.pool.keys_values.float())[:, 1, 0]
        results.append((valid(bench, attended), written.unflatten(2, (2, bench.config.num_heads))[:, :, :, 1:]))
    assert_near(results[1][0], results[0][0], torch.float16)
    assert_near(results[1][1], results[0][1])


def test_attention_of_bfloat16_over_8_bit_context() -> None:
    """It is computed in float16: so near as bfloat16's own rounding, of the rotation and of what comes out, allows."""
    results = []
    for bench, attend in zip(
        benches(MIXED_ROWS, dtype=torch.bfloat16, kv_dtype=FLOAT8),
        (flow_reference.attend, attend_in_splits(1)),
        strict=True,
    ):
        qkv = random_lines(bench, 3 * bench.config.num_heads * bench.config.head_dim, dtype=torch.bfloat16)
        results.append(valid(bench, attend(bench.tensors, bench.batch, qkv, 0)))
    assert results[1].dtype == torch.bfloat16
    expected, actual = (each.float() for each in results)
    assert (actual - expected).square().mean().sqrt() < 0.02 * expected.square().mean().sqrt()


def product(num_lines: int, width_in: int, width_out: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    shapes = (num_lines, width_in), (width_out, width_in), (width_out,)
    x, weight, bias = ((0.2 * torch.randn(shape, generator=generator)).to(dtype) for shape in shapes)
    return x, weight, bias, torch.nn.functional.linear(x.float(), weight.float(), bias.float())


@pytest.mark.parametrize("has_gelu", [False, True])
def test_linear(has_gelu: bool) -> None:
    x, weight, bias, expected = product(40, 64, 32, torch.float32)
    tile = fused_linear.LinearTile(lines=32, outs=16, depth=32, num_stages=1, num_warps=4)
    actual = fused_linear.launch_linear(x, weight, bias, tile=tile, has_gelu=has_gelu, is_pdl=False)
    assert_near(actual, torch.nn.functional.gelu(expected, approximate="tanh") if has_gelu else expected)


def test_linear_in_parts() -> None:
    x, weight, bias, expected = product(40, 64, 32, torch.float16)
    tile = fused_linear.LinearTile(lines=32, outs=16, depth=16, num_stages=1, num_warps=4, num_parts=2)
    actual = fused_linear.launch_linear(x, weight, bias, tile=tile, has_gelu=False, is_pdl=False)
    assert actual.dtype == torch.float32
    assert actual.shape == (2 * 40, 32)
    assert_near(actual.view(2, 40, 32).sum(0), expected)


def test_a_tile_has_as_many_stages_as_there_is_shared_memory_for() -> None:
    tile = fused_linear.LinearTile(lines=128, outs=64, depth=64, num_stages=6, num_warps=4, num_parts=4)
    assert tile.within(227 * 1024, torch.bfloat16) == tile
    assert tile.within(99 * 1024, torch.bfloat16) == replace(tile, num_stages=4)


@pytest.mark.parametrize("num_lines", [20, 64, 65, 100, 128, 129, 200, 300, 400])
def test_tiles_with_weights_ahead_fit_a_hopper(num_lines: int) -> None:
    """At the released widths; of wide products only those of up to 200 lines have one."""
    for (width_out, width_in), tile_of in (
        ((3_072, 1_024), fused_linear._ahead_tile),
        ((2_048, 1_024), fused_linear._ahead_tile),
        ((1_024, 1_024), fused_linear._ahead_update_tile),
        ((1_024, 2_048), fused_linear._ahead_update_tile),
    ):
        tile = tile_of(num_lines, width_in, width_out)
        if tile is None:
            assert num_lines > 128
            continue
        assert tile.fits(torch.empty(width_out, width_in, device="meta"))
        num_inputs = tile.num_stages * tile.lines * tile.depth
        assert 2 * (tile.outs * width_in // tile.num_parts + num_inputs) <= 227 * 1024


@pytest.mark.parametrize("num_lines", [64, 200, 300])
def test_an_update_of_any_length(num_lines: int) -> None:
    tensors = next(benches(ROWS)).tensors
    x, weight, bias, expected = product(num_lines, 256, 64, torch.float16)
    actual = fused_linear.update(tensors, x, weight, bias)
    assert_near(actual.view(-1, *expected.shape).float().sum(0), expected, torch.float16)


def assert_near_in_float8(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """But where the interpreter rounds wrongly: subnormals, and where rounding may carry into the exponent."""
    assert actual.dtype == expected.dtype == FLOAT8
    mantissas = expected.view(torch.uint8) & 7
    is_sure = (mantissas > 0) & (mantissas < 7) & (expected.float().abs() >= 2**-6)
    assert is_sure.float().mean() > 0.5
    actual, expected = actual.float()[is_sure], expected.float()[is_sure]
    torch.testing.assert_close(actual, expected, rtol=2**-3, atol=0)
    assert (actual == expected).float().mean() > 0.98


def test_norm_into_float8() -> None:
    results = []
    for bench, norm in zip(benches(ROWS, dtype=torch.float16), (flow_reference.norm, fused_ops.norm), strict=True):
        hidden = random_lines(bench, bench.config.dim, dtype=torch.float32).view(2, -1, bench.config.dim)
        out = norm(bench.tensors, bench.batch, hidden, update=None, gate_row=0, scale_row=6, dtype=FLOAT8)
        results.append(valid(bench, out))
    assert_near_in_float8(results[1], results[0])


def test_attention_into_float8() -> None:
    results = []
    ops = flow_reference.attend, fused_attention.attend
    for bench, attend in zip(benches(MIXED_ROWS, dtype=torch.float16), ops, strict=True):
        qkv = random_lines(bench, 3 * bench.config.num_heads * bench.config.head_dim, dtype=torch.float16)
        results.append(valid(bench, attend(bench.tensors, bench.batch, qkv, 1, dtype=FLOAT8)))
    assert_near_in_float8(results[1], results[0])


def test_gelu_into_float8() -> None:
    x = torch.randn(40, 256, generator=torch.Generator().manual_seed(2)).half()
    expected = flow_reference.saturated(torch.nn.functional.gelu(x.float(), approximate="tanh"), FLOAT8)
    assert_near_in_float8(float8_linear.gelu(x, dtype=FLOAT8, is_pdl=False), expected)


@pytest.mark.parametrize("name", ["qkv", "ff_in", "ff_out"])
def test_products_of_float8(name: str) -> None:
    """torch multiplies 8-bit floats on a CPU too."""
    bench = next(benches(ROWS))
    exact, tensors = bench.tensors.layers[1], in_float8(bench.tensors)
    weight, bias = getattr(tensors.layers[1], f"{name}_weight"), getattr(exact, f"{name}_bias")
    x = random_lines(bench, weight.shape[1], dtype=torch.float32).to(FLOAT8)
    actual = float8_linear.linear(tensors, x, weight, bias)
    assert_near(actual, flow_reference.float8_linear(tensors, x, weight, bias))
    expected = flow_reference.linear(bench.tensors, x.float(), getattr(exact, f"{name}_weight"), bias)
    assert ((actual - expected).square().mean() / expected.square().mean()).sqrt() < 0.03
    wide = float8_linear.widen(tensors, x, weight, bias)
    assert_near_in_float8(wide, flow_reference.float8_widen(tensors, x, weight, bias))


def test_euler_step() -> None:
    results = []
    for bench, euler in zip(benches(ROWS), (flow_reference.euler, fused_ops.euler), strict=True):
        before = bench.batch.x.clone()
        euler(bench.tensors, bench.batch, random_lines(bench, bench.config.dim, dtype=torch.float32))
        assert not torch.equal(before, bench.batch.x)
        results.append(bench.batch.x)
    assert_near(results[1], results[0])


def test_a_whole_step_of_kernels() -> None:
    """But GELU, which on a CPU is another function of torch's, and the input, which is slow and has its test."""
    reference = flow_reference.REFERENCE_OPS
    fused = replace(STEP_OPS, embed=reference.embed, widen=reference.widen)
    results = []
    for bench, ops in zip(benches([Row(2, 14)], num_padding=0, step=0), (reference, fused), strict=True):
        FixedShapeEstimator(bench.model, bench.tensors, ops).advance(bench.batch)
        assert bench.batch.step.item() == 1
        x = torch.stack((bench.batch.x, bench.batch.x))
        results.append(valid(bench, x))
    assert_near(results[1], results[0])
