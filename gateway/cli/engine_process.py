"""An engine process: `python -m voicegate.gateway.cli.engine_process NAME DESCRIPTOR`, started by `replicas` alone.

The descriptor is its end of the channel to the front, which tells it what to load. It ends when that does, and is
started deaf to the signals that a whole group gets.
"""

import asyncio
import logging
import os
import socket
import sys
from typing import NoReturn

import uvloop

from voicegate.engine.interface import Engine
from voicegate.engine.load.build import create_engine
from voicegate.engine.load.progress import Progress
from voicegate.engine.process.child import EXIT_FAILED, FrontGone, serve_engine
from voicegate.gateway.cli.replicas import EngineTask
from voicegate.gateway.logs import configure_logs, get_logger

log = get_logger(__name__)


def _make_engine(greeting: bytes, on_progress: Progress) -> Engine:
    task = EngineTask.decode(greeting)
    configure_logs(task.log_level, task.log_format, task.log_lines_per_s, replica=task.name)
    return create_engine(task.engine, on_progress=on_progress)


async def _run(end: socket.socket) -> NoReturn:
    status = EXIT_FAILED
    try:
        status = await serve_engine(end, _make_engine)
    except FrontGone:
        log.warning("front is gone")
    except Exception:  # the root of the process: what a device raises, mostly
        log.exception("engine process failed")
    _leave(status)


def _leave(status: int) -> NoReturn:
    """As it is: a thread that loads models, or that a device holds, does not survive the interpreter's own end."""
    logging.shutdown()
    os._exit(status)


def main() -> None:
    _, _, descriptor = sys.argv
    end = socket.socket(fileno=int(descriptor))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(end))


if __name__ == "__main__":
    main()
