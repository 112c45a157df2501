"""For all tests: one torch thread, no deadlines, Triton's interpreter where there is no GPU, and shared models.

Most products here are too small to share, and threads that spin for each other make a busy machine crawl. On one that
is busy with something else an example takes as long as it takes.
"""

import os
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tests.distribution import (
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from tests.soak.keeping import keep, pytest_runtest_makereport

__all__ = [
    "keep",
    "pytest_collection_modifyitems",
    "pytest_runtest_makereport",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
]

torch.set_num_threads(1)

settings.register_profile("voicegate", deadline=None)
settings.load_profile("voicegate")

# Triton decides at its first import, and some test module imports it first; on a GPU machine kernels are compiled.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def nothing_that_tests_share_is_left_changed() -> Iterator[None]:
    """The tiny model's stages (tests/support/tiny_engine.py); torch's threads, with more of which sums round anew."""
    before = _free_of_the_shared_models()
    yield
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert num_threads == 1
    if before is not None:
        assert _free_of_the_shared_models() == before


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Of torch, in this test."""
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
