"""For all tests: one torch thread, no deadlines, and Triton's interpreter where there is no GPU.

Most products here are too small to share, and threads that spin for each other make a busy machine crawl. On one that
is busy with something else an example takes as long as it takes.
"""

import os

import torch
from hypothesis import settings

from tests.soak.keeping import keep, pytest_runtest_makereport

__all__ = ["keep", "pytest_runtest_makereport"]

torch.set_num_threads(1)

settings.register_profile("voicegate", deadline=None)
settings.load_profile("voicegate")

# Triton decides at its first import, and some test module imports it first; on a GPU machine kernels are compiled.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
