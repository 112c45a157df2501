"""Common parts of the bench's client processes: cores that are not the server's, and a window that counts."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import uvloop


@dataclass(slots=True)
class Counting:
    """Preconditions that a client looks at before it counts."""

    is_counting: bool = False

    async def window(self) -> dict[str, float]:
        """Counts from the next line on the input to the one behind it; what the process took, and for how long."""
        await asyncio.to_thread(sys.stdin.readline)
        self.is_counting = True
        began_s, cpu_before_s = time.monotonic(), time.process_time()
        await asyncio.to_thread(sys.stdin.readline)
        self.is_counting = False
        window_s = time.monotonic() - began_s
        return {"cpu": (time.process_time() - cpu_before_s) / window_s, "window_s": window_s}


def run(parser: argparse.ArgumentParser, be: Callable[[argparse.Namespace], Coroutine[Any, Any, None]]) -> None:
    parser.add_argument("url")
    parser.add_argument("--not-on-core", type=int, help="a core that is left to the server")
    options = parser.parse_args()
    cores = os.sched_getaffinity(0) - {options.not_on_core}
    if cores:
        os.sched_setaffinity(0, cores)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(be(options))
