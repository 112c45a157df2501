"""Triton's interpreter as the tests have it (tests/support/triton_interpreter.py) still notices what is wrong."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def _twice(values):
    return values + values


@triton.jit
def _double(numbers, sums, size: tl.constexpr):
    at = tl.arange(0, size)
    values = tl.load(numbers + at)
    tl.store(numbers + at, _twice(values))
    tl.store(sums, tl.sum(values, 0))


@triton.jit
def _add_rows(left, right, size: tl.constexpr, other: tl.constexpr):
    tl.store(left + tl.arange(0, size), tl.load(left + tl.arange(0, size)) + tl.load(right + tl.arange(0, other)))


def doubled(numbers: list[int], dtype: torch.dtype) -> tuple[list[int], int]:
    values, sums = torch.tensor(numbers, dtype=dtype), torch.zeros(1, dtype=dtype)
    _double[(1,)](values, sums, size=len(numbers))
    return values.tolist(), int(sums)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_functions_that_a_kernel_calls(dtype: torch.dtype) -> None:
    assert [doubled([1, 2, -3, 4], dtype) for _ in range(2)] == [([2, 4, -6, 8], 4)] * 2


@pytest.mark.parametrize(("n", "m"), [(4, 8), (3, 3)])
def test_shapes_that_do_not_fit_or_are_none(n: int, m: int) -> None:
    with pytest.raises(triton.runtime.interpreter.InterpreterError):
        _add_rows[(1,)](torch.zeros(n), torch.zeros(m), size=n, other=m)


def test_after_a_failed_kernel_the_next_one_runs() -> None:
    with pytest.raises(triton.runtime.interpreter.InterpreterError):
        _add_rows[(1,)](torch.zeros(2), torch.zeros(4), size=2, other=4)
    assert doubled([1, 2], torch.int32) == ([2, 4], 3)
