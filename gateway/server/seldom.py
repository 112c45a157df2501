"""Log lines that a client could cause at will, each at most once in a while: one that is refused comes back at once.

The next one tells how many were left out.
"""

import asyncio
from collections import Counter
from typing import Any, Final

# Between two log lines that say the same.
_SAY_AGAIN_S: Final = 10.0


class SeldomLog:
    def __init__(self, log: Any) -> None:
        self._log = log
        self._said_at_s: dict[str, float] = {}
        self._num_left_out: Counter[str] = Counter()

    def warning(self, event: str, **fields: object) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._said_at_s.get(event, -_SAY_AGAIN_S) + _SAY_AGAIN_S:
            self._num_left_out[event] += 1
            return
        self._said_at_s[event] = now_s
        self._log.warning(event, left_out=self._num_left_out.pop(event, 0), **fields)
