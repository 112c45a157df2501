"""Tests of the CUDA path: marker `gpu`, run on a GPU machine by `python -m voicegate.bench.gpu_tests`."""

import gc
from importlib.util import find_spec

import pytest
import torch

# The yardsticks are cuDNN's convolutions, which round to TF32 by default.
torch.backends.cudnn.allow_tf32 = False

# Where Triton does not exist (macOS) these modules cannot even be imported.
collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]


@pytest.fixture(scope="module", autouse=True)
def memory_of_the_module_before() -> None:
    """Given back: an engine and its CUDA graphs hold each other, and fill a card until Python happens to look."""
    gc.collect()
    torch.cuda.empty_cache()
