"""Pieces of the estimator against torch's own definitions. Parity with upstream is in tests/parity."""

import itertools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from tests.support.flow import CPU, flow_config, flow_state
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.estimator import CONV_HISTORY, Estimator, causal_conv, mish
from voicegate.engine.flow.stream import BlockRow
from voicegate.engine.flow.torch.offline import WholeSequence
from voicegate.engine.flow.torch.solver import BlockContext


def test_mish_from_end_to_end() -> None:
    x = torch.cat((torch.linspace(-120, 120, 4_001), torch.linspace(-3, 3, 4_001)))
    torch.testing.assert_close(mish(x), F.mish(x), rtol=1e-6, atol=1e-6)


def test_causal_conv_is_a_grouped_conv_over_frames() -> None:
    generator = torch.Generator().manual_seed(3)
    window = torch.randn(2, 3, 37, 32, generator=generator)
    weight = torch.randn(32, 2, 31, generator=generator)
    bias = torch.randn(32, generator=generator)
    expected = F.conv1d(window.flatten(0, 1).mT, weight, bias, groups=16).mT.view(2, 3, 7, 32)
    actual = causal_conv(window, weight.unsqueeze(2), bias)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-4)


def test_block_attention_equals_masked_attention_over_the_whole() -> None:
    config = flow_config().estimator
    generator = torch.Generator().manual_seed(4)
    qkv = torch.randn(2, 1, 120, 3, config.num_heads, config.head_dim, generator=generator)
    whole = WholeSequence(120, streaming=True, device=CPU).attend(qkv, step=0, layer=1)
    pool = BlockPool(config, num_steps=1, num_blocks=5, device=CPU, dtype=torch.float32, poison=True)
    pool.allocate(1)
    blocks: list[int] = []
    pieces = []
    for start in (0, 50, 100):
        piece = qkv[:, :, start : start + 50]
        row = BlockRow(finished=tuple(blocks), block=pool.allocate(1)[0], num_frames=piece.shape[2])
        pieces.append(BlockContext(pool, [row]).attend(piece, step=0, layer=1))
        blocks.append(row.block)
    torch.testing.assert_close(torch.cat(pieces, dim=2), whole, rtol=0, atol=1e-5)


def test_a_blocks_convolutions_see_the_end_of_the_block_right_before_it() -> None:
    """Convolutions of its own stream, step and layer, and zeros before the first."""
    config = flow_config().estimator
    pool = BlockPool(config, num_steps=2, num_blocks=9, device=CPU, dtype=torch.float32, poison=True)
    pool.allocate(1)
    rows, halves = range(2), range(2)
    finished: list[list[int]] = [[] for _ in rows]
    for turn in range(3):
        new = pool.allocate(len(finished))
        context = BlockContext(
            pool, [BlockRow(tuple(before), block, 50) for before, block in zip(finished, new, strict=True)]
        )
        for step, conv in itertools.product(range(2), range(2)):
            hidden = torch.empty(len(halves), len(rows), 50, config.dim)
            for row in rows:
                hidden[:, row] = named_frames(row, turn, step, conv)
            window = context.with_history(hidden, step=step, conv=conv)
            assert torch.equal(window[:, :, CONV_HISTORY:], hidden)
            for row in rows:
                before = (
                    named_frames(row, turn - 1, step, conv)[-CONV_HISTORY:] if turn else torch.zeros(CONV_HISTORY, 1)
                )
                assert torch.equal(window[:, row, :CONV_HISTORY], before.expand(2, -1, config.dim))
        for blocks, block in zip(finished, new, strict=True):
            blocks.append(block)


def named_frames(row: int, turn: int, step: int, conv: int) -> torch.Tensor:
    """[50, 1]: no two frames of any block are the same."""
    number = ((row * 3 + turn) * 2 + step) * 2 + conv
    return torch.arange(50).unsqueeze(1) + 50.0 * number + 1


def test_padding_of_a_short_row_is_not_attended_to() -> None:
    config = flow_config().estimator
    generator = torch.Generator().manual_seed(5)
    qkv = torch.randn(2, 2, 50, 3, config.num_heads, config.head_dim, generator=generator)
    pool = BlockPool(config, num_steps=1, num_blocks=3, device=CPU, dtype=torch.float32, poison=True)
    full, short, alone = pool.allocate(3)
    rows = [BlockRow((), full, 50), BlockRow((), short, 18)]
    both = BlockContext(pool, rows).attend(qkv, step=0, layer=0)
    single = BlockContext(pool, [BlockRow((), alone, 18)]).attend(qkv[:, 1:, :18], step=0, layer=0)
    torch.testing.assert_close(both[:, 1, :18], single[:, 0], rtol=0, atol=1e-6)
    assert both.isfinite().all()


def test_rotary_frequencies_of_the_checkpoint_are_used() -> None:
    """The tiny model stores them rounded to float16 and was trained and referenced so."""
    prefix = "decoder.estimator."
    state = {key.removeprefix(prefix): value for key, value in flow_state().items() if key.startswith(prefix)}
    config = flow_config().estimator
    by_formula = Estimator(config, state, [0.0], dtype=torch.float32).rotations(10)
    frequencies = torch.full((config.head_dim // 2,), 0.25)
    stored = Estimator(config, state | {"rotary_embed.inv_freq": frequencies}, [0.0], dtype=torch.float32).rotations(10)
    assert by_formula[1, 1].angle().item() == pytest.approx(10_000 ** (-2 / config.head_dim))
    torch.testing.assert_close(stored[3].angle(), frequencies * 3)
