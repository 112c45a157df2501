"""A real engine process with a FakeEngine: `python -m tests.support.fake_engine_process NAME DESCRIPTOR`."""

import asyncio
import os
import socket
import sys

from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.process.child import EXIT_FAILED, FrontGone, serve_engine

# Slow enough to be interrupted, with little ahead.
SCRIPT = Script(real_time_factor=0.2, max_lead_ms=60_000)


async def serve() -> int:
    end = socket.socket(fileno=int(sys.argv[2]))
    try:
        return await serve_engine(end, lambda _greeting, _progress: FakeEngine(SCRIPT))
    except FrontGone:
        os._exit(EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
