"""Attention over what lies anywhere in the memory, against a softmax over all of it; in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from tests.unit.engine.families.stepaudio2.cuda.support import Bench, Row
from voicegate.engine.families.stepaudio2.flow.cuda import fused_attention
from voicegate.engine.families.stepaudio2.flow.cuda.fused_attention import AttendTile
from voicegate.engine.families.stepaudio2.flow.estimator import INNER_NORM_EPS

pytestmark = [
    pytest.mark.usefixtures("poisoned_memory"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="CPU tensors; tests/gpu runs the kernels on CUDA"),
]

LAYER = 1
# Two tiles of queries and one; keys in tiles that end in their middle, where they are full, and that there are none of.
ROWS = [Row(16, 9), Row(0, 8)]
FLOAT8 = torch.float8_e4m3fn
# Half precision as float16: the interpreter multiplies bfloat16 as integers.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 1e-2}


def expected(bench: Bench, qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attended frames [., H * d] and what is kept of the new ones, [new, 2, C, H, d]; all float32."""
    config, weights = bench.model.config.estimator, bench.model.estimator.layers[LAYER]
    shape = (2, bench.shape.num_rows, bench.shape.num_frames, 3, config.num_heads, config.head_dim)
    queries, keys, values = qkv.float().view(shape).unbind(3)

    def normed(heads: torch.Tensor, norm: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return F.layer_norm(heads, heads.shape[-1:], norm[0].float(), norm[1].float(), INNER_NORM_EPS)

    queries, keys = normed(queries, weights.query_norm), normed(keys, weights.key_norm)
    attended, kept = [], []
    for index, row in enumerate(bench.rows):
        count = row.num_frames
        new = torch.stack((keys[:, index, :count], values[:, index, :count]))  # [2, C, n, H, d]
        past = bench.memory.estimator[LAYER, 1].float()[row.context[: len(row.context) - count]]
        seen = torch.cat((past.permute(1, 2, 0, 3, 4), new), dim=2).transpose(2, 3)
        out = F.scaled_dot_product_attention(queries[:, index, :count].transpose(1, 2), *seen)
        attended.append(out.transpose(1, 2).flatten(2).flatten(0, 1))
        kept.append(new.permute(2, 0, 1, 3, 4))
    return torch.cat(attended), torch.cat(kept)


@pytest.mark.parametrize(
    ("splits", "dtype", "kv_dtype"),
    [(1, torch.float16, FLOAT8), (1, torch.bfloat16, FLOAT8), (3, torch.float32, None)],
)
def test_attention(splits: int, dtype: torch.dtype, kv_dtype: torch.dtype | None) -> None:
    bench = Bench(ROWS, num_tokens=9, num_known=60, has_garbage=True, dtype=dtype, kv_dtype=kv_dtype)
    config = bench.model.config.estimator
    num_lines = 2 * bench.shape.num_rows * bench.shape.num_frames
    width = 3 * config.num_heads * config.head_dim
    qkv = torch.randn(num_lines, width, generator=torch.Generator().manual_seed(9)).to(dtype)
    for index, count in enumerate([*(row.num_frames for row in bench.rows), 0]):
        qkv.view(2, *bench.shape_of_lines, width)[:, index, count:] = torch.nan
    attended, kept = expected(bench, qkv)
    before = bench.left_alone()
    tile = AttendTile(frames=16, keys=16, splits=splits, num_stages=1, num_warps=4)
    actual = fused_attention.attend(bench.tensors, bench.buffers, qkv, LAYER, tile=tile)
    assert actual.dtype == dtype
    torch.testing.assert_close(bench.own(actual).float(), attended, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    if kv_dtype is None:
        torch.testing.assert_close(bench.written()[LAYER], kept, rtol=1e-5, atol=1e-5)
    else:  # the interpreter loses a carry where it rounds
        is_near = (bench.written()[LAYER] - kept).abs() <= 2**-6 + 2**-4 * kept.abs()
        assert is_near.float().mean() > 0.95
    torch.testing.assert_close(bench.left_alone(), before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("num_rows", "num_frames", "num_known", "splits"),
    [(1, 24, 512, 8), (1, 104, 512, 4), (2, 24, 64, 1), (4, 104, 2_048, 1), (32, 4, 512, 1)],
)
def test_contexts_are_split_where_programs_are_few(num_rows: int, num_frames: int, num_known: int, splits: int) -> None:
    sizes = {"num_rows": num_rows, "num_frames": num_frames, "num_known": num_known, "num_heads": 8}
    assert fused_attention.attend_tile(torch.bfloat16, **sizes).splits == splits
    assert fused_attention.attend_tile(torch.float32, **sizes).num_stages == 1


def test_many_programs_have_fewer_registers_each() -> None:
    few = fused_attention.attend_tile(torch.bfloat16, num_rows=8, num_frames=104, num_known=512, num_heads=8)
    many = fused_attention.attend_tile(torch.bfloat16, num_rows=32, num_frames=104, num_known=512, num_heads=8)
    assert few.max_registers is None
    assert many.max_registers is not None
