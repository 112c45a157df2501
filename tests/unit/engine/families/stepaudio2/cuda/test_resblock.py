"""The vocoder's residual blocks with a kernel between convolutions, against torch's operations; interpreted."""

import pytest
import torch

from tests.support.stepaudio2 import normal
from voicegate.engine.families.stepaudio2.vocoder.cuda import fused_resblock
from voicegate.engine.families.stepaudio2.vocoder.network import RowLengths
from voicegate.engine.families.stepaudio2.vocoder.resblocks import plain_resblock

pytestmark = [
    pytest.mark.usefixtures("poisoned_memory"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="CPU tensors; tests/gpu runs the kernels on CUDA"),
]

DILATIONS = (1, 3)
CHANNELS = 3


def test_a_block_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are padded and that are not; columns in two tiles; as many rows as counts have columns between them."""
    monkeypatch.setattr(fused_resblock, "_COLUMNS", 16)
    counts = torch.tensor([[4, 7, 1], [2, 0, 0]])
    columns = RowLengths(counts[:, 0], 4).columns(6, extra=1)
    shapes = {"convs1": (CHANNELS, CHANNELS, 5), "convs2": (CHANNELS, CHANNELS, 5)}
    weights = {
        f"block.{part}.{index}.{kind}": normal(f"{part}.{index}.{kind}", shape if kind == "weight" else shape[:1])
        for index in range(len(DILATIONS))
        for part, shape in shapes.items()
        for kind in ("weight", "bias")
    } | {
        f"block.activations{part}.{index}.alpha": 1 + normal(f"alpha.{part}.{index}", (CHANNELS,)).abs()
        for index in range(len(DILATIONS))
        for part in (1, 2)
    }
    x = normal("x", (2, CHANNELS, 25)) * columns.mask
    before = x.clone()
    expected = plain_resblock(weights, "block", x, DILATIONS, columns)
    actual = fused_resblock.fused_resblock(weights, "block", x, DILATIONS, columns)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert not actual[1, :, 2 * 6 + 1 :].any()
    assert torch.equal(x, before), "other blocks begin with it too"
