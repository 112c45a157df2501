"""How pytest-xdist shares tests among its workers: by file, waiting ones beside computing ones, and long ones first.

By file for the fixtures of modules and for the browser's event loop; those of packaging are one file to it, else each
worker would build the wheels and install them for itself. What takes long comes first, else one worker ends alone.

Tests of sockets, browsers and packages wait most of their time. Side by side they would leave cores idle. So
`--numprocesses auto` is two more than there are cores, and the last two workers take the tests that wait. Each worker
helps the others when its own kind has run out.
"""

import gc
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController

_LONG_FIRST = ("packaging", "browser", "integration", "e2e", "contract", "parity", "unit")
_WAITING = (
    "tests/packaging/",
    "tests/browser/",
    "tests/integration/",
    "tests/unit/engine/audio/test_encoder_",
    "tests/unit/engine/backends/disaggregated/test_hangs.py",
)
_SHARE_THEIR_FIXTURES = "tests/packaging/"
_NUM_WAITING = 2
# New objects before the garbage collector looks. Higher -> less time; a cycle that holds a file is told of later.
_GC_THRESHOLD = 20_000


def next_scope(scopes: Iterable[str], *, waiting: bool) -> str | None:
    """The first one of this kind."""
    return next((scope for scope in scopes if scope.startswith(_WAITING) == waiting), None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the garbage collector: it took a quarter of the time, and modules and tests all stay.

    For the same reason it passes over them later, and comes seldom: unit tests take a tenth less.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return  # one process alone runs them in the order that was asked for

    def rank(item: pytest.Item) -> int:
        folder = item.nodeid.split("/")[1]
        return _LONG_FIRST.index(folder) if folder in _LONG_FIRST else len(_LONG_FIRST)

    items.sort(key=rank)  # within a folder the order stays as it is


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    return (yield) + _NUM_WAITING


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling | None":
    """None: another way was asked for than --dist loadfile."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_shared = nodeid.startswith(_SHARE_THEIR_FIXTURES)
            return _SHARE_THEIR_FIXTURES if is_shared else super()._split_scope(nodeid)

        def _assign_work_unit(self, node: "WorkerController") -> None:
            waits = node in self.nodes[max(1, len(self.nodes) - _NUM_WAITING) :]
            scope = next_scope(self.workqueue, waiting=waits)
            if scope is not None:
                self.workqueue.move_to_end(scope, last=False)  # where it is taken from
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False  # it would put the files with most tests first
    return ByFile(config, log)
