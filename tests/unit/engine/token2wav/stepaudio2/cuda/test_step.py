"""A whole Euler step of kernels against torch's operations, in Triton's interpreter where there is no GPU."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.engine.token2wav.stepaudio2.cuda.support import Bench, Row

pytestmark = [
    pytest.mark.unit,
    pytest.mark.usefixtures("poisoned_memory"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="CPU tensors; tests/gpu runs the kernels on CUDA"),
]


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """What a kernel leaves unwritten is NaN, and numpy, which the interpreter is, does not warn of it."""
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic)


def stepped(rows: list[Row], **options: Any) -> tuple[Bench, Bench]:
    """One step by torch's operations, one by kernels."""
    plain, fused = (Bench(rows, has_garbage=has_garbage, **options) for has_garbage in (False, True))
    plain.plain_step().advance(plain.buffers)
    fused.fused_step().advance(fused.buffers)
    return plain, fused


@pytest.mark.parametrize(
    ("rows", "num_tokens", "num_known"),
    [
        ([Row(0, 2), Row(70, 3), Row(9, 1)], 3, 80),
        ([Row(24, 4)], 4, 32),  # full
    ],
)
def test_a_step_of_kernels_is_the_plain_one(rows: list[Row], num_tokens: int, num_known: int) -> None:
    plain, fused = stepped(rows, num_tokens=num_tokens, num_known=num_known)
    num_rows = len(rows)
    for part in (lambda bench: bench.own(bench.buffers.x), lambda bench: bench.written()):
        assert part(plain).isfinite().all()
        torch.testing.assert_close(part(fused), part(plain), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(
        fused.buffers.estimator_tails[:num_rows], plain.buffers.estimator_tails[:num_rows], rtol=2e-5, atol=2e-5
    )
    torch.testing.assert_close(fused.left_alone(), plain.left_alone(), rtol=0, atol=0, equal_nan=True)
    assert fused.buffers.step.item() == plain.buffers.step.item() == 2
