"""How pytest-xdist shares tests among its workers: by file, and what takes long first.

By file for the fixtures of modules and for the browser's event loop; those of packaging are one file to it, else each
worker would build the wheels and install them for itself. What takes long comes first, else one worker ends alone.
`--numprocesses auto` is one more than there are cores: a quarter of a worker's time it waits, for speech in real time,
for a process that starts, for a limit that is over.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

_LONG_FIRST = ("packaging", "e2e", "contract", "browser", "parity", "integration", "unit")
_SHARE_THEIR_FIXTURES = "tests/packaging/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = item.nodeid.split("/")[1]
        return _LONG_FIRST.index(folder) if folder in _LONG_FIRST else len(_LONG_FIRST)

    items.sort(key=rank)  # within a folder the order stays as it is


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    return 1 + (yield)


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

    config.option.loadscopereorder = False  # it would put the files with most tests first
    return ByFile(config, log)
