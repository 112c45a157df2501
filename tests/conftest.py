"""For all tests: one torch thread. Most products here are too small to share, and threads that spin for each other
make a busy machine crawl."""

import torch

torch.set_num_threads(1)
