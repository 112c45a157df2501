"""The second family's CUDA kernels on a CPU, by Triton's interpreter."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.support.triton_interpreter import uses_interpreter

# Where Triton does not exist (macOS) these modules cannot even be imported.
collect_ignore_glob = [] if uses_interpreter() else ["test_*.py"]


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Memory that a kernel leaves unwritten is NaN; and numpy, which the interpreter is, does not warn of it."""
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic)
