"""Memory of the second family's kernels."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch


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
