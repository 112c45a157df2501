"""Log lines that a client could cause at will, each at most once in a while: one that is refused comes back at once."""

import asyncio
from typing import Any, Final

# Between two log lines that say the same.
_SAY_AGAIN_S: Final = 10.0


class SeldomLog:
    def __init__(self, log: Any) -> None:
        self._log = log
        self._said_at_s: dict[str, float] = {}

    def warning(self, event: str, **fields: object) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._said_at_s.get(event, -_SAY_AGAIN_S) + _SAY_AGAIN_S:
            self._said_at_s[event] = now_s
            self._log.warning(event, **fields)
