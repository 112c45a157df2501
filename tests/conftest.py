"""For all tests: one torch thread, and Triton's interpreter where there is no GPU.

Most products here are too small to share, and threads that spin for each other make a busy machine crawl.
"""

import os

import torch

torch.set_num_threads(1)

# Triton decides at its first import, and some test module imports it first; on a GPU machine kernels are compiled.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
