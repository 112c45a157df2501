"""An engine process that starts another one as vLLM does: `python -m tests.support.spawning_engine_process NAME FD`.

By Python's multiprocessing from a thread. The other one imports vLLM's `worker_extension_cls` by name, and its main
thread never comes back.
"""

import asyncio
import importlib
import multiprocessing
import os
import socket
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NoReturn

from voicegate.engine.backends.vllm.library import ENDS_WITH_ENGINE
from voicegate.engine.child_process import before_multiprocessing
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.interface import Engine
from voicegate.engine.load.progress import Progress
from voicegate.engine.process.child import EXIT_FAILED, FrontGone, serve_engine


def core(end: Connection) -> None:
    module, _, name = ENDS_WITH_ENGINE.rpartition(".")
    getattr(importlib.import_module(module), name)
    end.send(os.getpid())
    threading.Event().wait()


def start_core() -> int:
    """Its process id, once it has what it needs."""
    before_multiprocessing()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    context.Process(target=core, args=(theirs,), name="EngineCore").start()
    return int(ours.recv())


class SpawningEngine(FakeEngine):
    async def start(self) -> None:
        sys.stderr.write(f"{await asyncio.to_thread(start_core)}\n")
        sys.stderr.flush()
        await super().start()


def make_engine(_greeting: bytes, _progress: Progress) -> Engine:
    return SpawningEngine(Script(real_time_factor=0.2, max_lead_ms=60_000))


async def serve() -> NoReturn:
    """As gateway/cli/engine_process.py."""
    end = socket.socket(fileno=int(sys.argv[2]))
    status = EXIT_FAILED
    with suppress(FrontGone):
        status = await serve_engine(end, make_engine)
    os._exit(status)


if __name__ == "__main__":
    asyncio.run(serve())
