"""Channels-last layers equal the convolutions that they stand for, at once and in pieces."""

import pytest
import torch
from torch.nn import functional

from voicegate.engine.vocoder.torch.layers import ONEDNN_MIN_NUMBERS, Convolution, ResBlock, SnakeConv, Upsample
from voicegate.engine.vocoder.torch.state import BatchRows, StateTable

CPU = torch.device("cpu")


def random_tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def even_rows(num_rows: int, num_frames: int) -> BatchRows:
    nothing = torch.zeros(num_rows, dtype=torch.bool)
    return BatchRows(torch.full((num_rows,), num_frames), nothing, nothing, num_frames)


def resblock_weights(kernel: int) -> dict[str, torch.Tensor]:
    weights = {}
    for index in range(2):
        for half in (1, 2):
            weights[f"block.convs{half}.{index}.weight"] = random_tensor(8, 8, kernel) / 5
            weights[f"block.convs{half}.{index}.bias"] = random_tensor(8)
            weights[f"block.activations{half}.{index}.alpha"] = 1 + random_tensor(8).abs()
    return weights


@pytest.mark.parametrize("num_columns", [40, ONEDNN_MIN_NUMBERS // 8 + 1])
@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize(("dilation", "stride"), [(1, 1), (5, 1), (1, 3)])
def test_convolution(num_columns: int, num_rows: int, dilation: int, stride: int) -> None:
    weight, bias = random_tensor(6, 8, 7), random_tensor(6)
    x = random_tensor(num_rows, num_columns, 8)
    expected = functional.conv1d(x.transpose(1, 2), weight, bias, dilation=dilation, stride=stride).transpose(1, 2)
    conv = Convolution(weight, bias, dilation=dilation, stride=stride, dtype=torch.float32)
    assert conv.span == 6 * dilation
    assert torch.allclose(conv(x), expected, atol=2e-5)
    assert torch.allclose(conv(x[:, 3:]), expected[:, 3 // stride :], atol=2e-5)  # a view, as the stages pass it


@pytest.mark.parametrize(("factor", "kernel"), [(8, 16), (5, 11), (3, 7), (3, 6)])
def test_folded_upsampling(factor: int, kernel: int) -> None:
    weights = {"up.weight": random_tensor(4, 8, kernel), "up.bias": random_tensor(4)}
    x = random_tensor(1, 20, 8)
    repeated = functional.pad(x.transpose(1, 2).repeat_interleave(factor, dim=2), (kernel - 1, 0))
    expected = functional.conv1d(repeated, weights["up.weight"], weights["up.bias"]).transpose(1, 2)
    upsample = Upsample("up", weights, factor, dtype=torch.float32)
    table = StateTable(upsample.layout, 1, dtype=torch.float32, device=CPU)
    tails = table.tails(table.rows)
    pieces = [
        upsample.advance(piece, tails, even_rows(1, piece.shape[1]), 1) for piece in torch.split(x, [1, 12, 7], dim=1)
    ]
    assert torch.allclose(torch.cat(pieces, dim=1), expected, atol=1e-5)


def test_snake_comes_before_the_convolution() -> None:
    weights = {"c.weight": random_tensor(3, 4, 3), "c.bias": random_tensor(3), "a.alpha": torch.tensor([0.5, 1, 2, 0])}
    x = random_tensor(1, 9, 4)
    alpha = weights["a.alpha"]
    active = functional.pad(x + torch.sin(x * alpha) ** 2 / (alpha + 1e-9), (0, 0, 4, 0))
    expected = functional.conv1d(active.transpose(1, 2), weights["c.weight"], weights["c.bias"], dilation=2)
    layer = SnakeConv("c", "a", weights, dilation=2, dtype=torch.float32)
    assert layer.layout == {"c": (4, 4)}
    out = layer.advance(x, {"c": torch.zeros(1, 4, 4)}, even_rows(1, 9), 1)
    assert torch.allclose(out, expected.transpose(1, 2), atol=1e-5)


@pytest.mark.parametrize("kernel", [3, 11])
def test_resblock_in_pieces_and_rows_of_unequal_length(kernel: int) -> None:
    block = ResBlock("block", resblock_weights(kernel), (1, 5), dtype=torch.float32)
    x = random_tensor(1, 40, 8)
    table = StateTable(block.layout, 2, dtype=torch.float32, device=CPU)
    whole = block.advance(x, table.tails(torch.zeros_like(table.rows[:1])), even_rows(1, 40), 1)
    tails = table.tails(table.rows)
    nothing = torch.zeros(2, dtype=torch.bool)
    done = [0, 0]
    for step in ((3, 9), (11, 2), (20, 20)):
        longest = max(step)
        padded = functional.pad(x, (0, 0, 0, longest))
        batch = torch.cat([padded[:, start : start + longest] for start in done])
        out = block.advance(batch, tails, BatchRows(torch.tensor(step), nothing, nothing, None), 1)
        for row, num_columns in enumerate(step):
            expected = whole[0, done[row] : done[row] + num_columns]
            assert torch.allclose(out[row, :num_columns], expected, atol=1e-5)
            done[row] += num_columns
