"""For all tests: one torch thread, no deadlines, Triton's interpreter where there is no GPU, and shared models.

Most products here are too small to share, and threads that spin for each other make a busy machine crawl. On one that
is busy with something else an example takes as long as it takes.

Nothing here imports torch: tests of protocol, gateway and clients start without it (tests/unit/test_test_runs.py).
"""

import ctypes
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.distribution import (
    pytest_collection,
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from tests.soak.keeping import keep

__all__ = [
    "keep",
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
]

settings.register_profile("voicegate", deadline=None)
settings.load_profile("voicegate")

# torch and numpy's BLAS read it at their import. With two threads a kernel under Triton's interpreter, which is numpy,
# takes four times as much CPU time. An engine's process sets torch's threads itself.
os.environ["OMP_NUM_THREADS"] = "1"


def _has_gpu_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


# Triton decides at its first import, and some test module imports it first; on a GPU machine kernels are compiled.
if not _has_gpu_driver():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def nothing_that_tests_share_is_left_changed() -> Iterator[None]:
    """The tiny model's stages (tests/support/tiny_engine.py); torch's threads, with more of which sums round anew."""
    before = _free_of_the_shared_models()
    yield
    if (torch := sys.modules.get("torch")) is not None:
        num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        assert num_threads == 1
    if before is not None:
        assert _free_of_the_shared_models() == before


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads of torch, in this test."""
    import torch

    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def _free_of_the_shared_models() -> tuple[int, int] | None:
    """Slots of the LLM and blocks of the flow; None: no test has loaded them yet."""
    tiny_engine = sys.modules.get("tests.support.tiny_engine")
    if tiny_engine is None or not tiny_engine.tiny_stages.cache_info().currsize:
        return None
    stages = tiny_engine.tiny_stages()
    return stages.llm.num_free_slots, stages.flow.num_free_blocks
