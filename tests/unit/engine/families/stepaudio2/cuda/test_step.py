"""A whole Euler step of kernels against torch's operations, in Triton's interpreter where there is no GPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import interpreter

from tests.unit.engine.families.stepaudio2.cuda.support import Bench, Row
from voicegate.engine.families.stepaudio2.flow.cuda.step import FusedStep

pytestmark = [
    pytest.mark.usefixtures("poisoned_memory"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="CPU tensors; tests/gpu runs the kernels on CUDA"),
]

# One row fills the buffers, the other has nothing before it and ends in their middle; contexts are split in two.
ROWS = [Row(70, 2), Row(0, 1)]
SIZES = {"num_tokens": 2, "num_known": 74}


def test_a_step_of_kernels_is_the_plain_one() -> None:
    plain, fused = Bench(ROWS, has_garbage=False, **SIZES), Bench(ROWS, has_garbage=True, **SIZES)
    plain.plain_step().advance(plain.buffers)
    fused.fused_step().advance(fused.buffers)
    parts: tuple[Callable[[Bench], torch.Tensor], ...] = (
        lambda bench: bench.own(bench.buffers.x),
        lambda bench: bench.written(),
        lambda bench: bench.buffers.estimator_tails[: len(ROWS)],
    )
    for part in parts:
        assert part(plain).isfinite().all()
        torch.testing.assert_close(part(fused), part(plain), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(fused.left_alone(), plain.left_alone(), rtol=0, atol=0, equal_nan=True)
    assert fused.buffers.step.item() == plain.buffers.step.item() == 2


class _Launches(TorchDispatchMode):
    """How many kernels a GPU would be given: torch's operations that are no views, and Triton's kernels."""

    _NONE = ("empty", "view", "t", "select", "unbind", "transpose", "permute", "expand", "slice", "unsqueeze", "detach")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ not in self._NONE
        return func(*args, **(kwargs or {}))


def test_a_step_is_few_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the released depth of 16 they are 196, where torch's operations are some 720."""
    bench = Bench(ROWS, has_garbage=False, **SIZES)
    plain_step, fused_step = bench.plain_step(), FusedStep(bench.model, bench.memory)
    fused, plain = _Launches(), _Launches()
    with plain:
        plain_step.advance(bench.buffers)
    bench.buffers.step.fill_(1)

    def launch(*_: object, **__: object) -> None:
        fused.count += 1

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch)
    with fused:
        fused_step.advance(bench.buffers)
    depth = bench.model.config.estimator.depth
    assert fused.count == 4 + 12 * depth
    assert plain.count > 3 * fused.count
