"""Tests of the CUDA path: marker `gpu`, run on a GPU machine by `python -m voicegate.bench.gpu_tests`."""

from importlib.util import find_spec

import torch

# The yardsticks are cuDNN's convolutions, which round to TF32 by default.
torch.backends.cudnn.allow_tf32 = False

# Where Triton does not exist (macOS) these modules cannot even be imported.
collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]
