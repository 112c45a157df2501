"""A self-hosted streaming voice gateway. What lies beside this file are links to the repository's folders.

The Python client's names (clients/python/__init__.py) are this package's own: `from voicegate import connect`. They are
imported when they are asked for, because the engine's helper processes import this package too and need no WebSocket.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

__version__: Final = "0.1.0"

if TYPE_CHECKING:
    from voicegate.clients.python import *  # noqa: F403 - they are listed there, once
else:  # a type checker that saw this would take any name

    def __getattr__(name: str) -> object:
        if not name.startswith("_"):
            client = import_module("voicegate.clients.python")
            if name in client.__all__:
                return getattr(client, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*globals(), *import_module("voicegate.clients.python").__all__])
