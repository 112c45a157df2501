"""Ways to run a gateway: as this process, or inside one. Raises GatewayError."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn

import uvloop

from voicegate import __version__
from voicegate.engine.interface import Engine, EngineInfo
from voicegate.gateway.config import GatewayConfig, config_fields
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.services import Trace
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.server import CLOSING_S, EXIT_FAILED, Gateway
from voicegate.gateway.server.service_manager import ServiceManager

log = get_logger(__name__)


def run_gateway(
    config: GatewayConfig,
    engine: Engine,
    *,
    on_ready: Callable[[str, EngineInfo], None] | None = None,
    on_failure: Callable[[str], None] | None = None,
    trace: Trace | None = None,
) -> int:
    """Serve on uvloop until a signal; returns the exit status, or ends the process where it was loading.

    `on_ready` is told the url and what the engine is; `on_failure` why it could not listen or did not last, which is
    an error in the log where no one asks.
    """
    log.info("starting", version=__version__, **_shown(config, only_changed=True))
    log.debug("settings", **_shown(config))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            gateway = Gateway(config, engine, owns_process=True, manager=ServiceManager(os.environ), trace=trace)
            status = runner.run(_run_announced(gateway, engine, on_ready))
        failure = gateway.failure
        if gateway.is_engine_left:
            _leave(status)
    except GatewayError as error:
        status, failure = EXIT_FAILED, str(error)
        if on_failure is None:
            log.error("cannot start", reason=failure)
    if failure is not None and on_failure is not None:
        on_failure(failure)
    return status


def _leave(status: int) -> NoReturn:
    """Ends the process as it is: a thread that loads models in C++ does not survive the interpreter's own end."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


async def _run_announced(gateway: Gateway, engine: Engine, on_ready: Callable[[str, EngineInfo], None] | None) -> int:
    async def announce() -> None:
        await gateway.settled.wait()
        if gateway.is_ready and on_ready is not None:
            on_ready(gateway.url, engine.info)

    announcing = asyncio.create_task(announce())
    try:
        return await gateway.run()
    finally:
        announcing.cancel()


@contextlib.asynccontextmanager
async def running_gateway(config: GatewayConfig, engine: Engine) -> AsyncIterator[str]:
    """A gateway inside this process, on a free loopback port and without signal handlers; yields its URL when ready.

    On exit it waits for nothing: contexts that still run are ended. Raises GatewayError, also for an engine that
    does not start.
    """
    gateway = Gateway(dataclasses.replace(config, host="127.0.0.1", port=0, drain_s=CLOSING_S), engine)
    stop = asyncio.Event()
    serving = asyncio.create_task(gateway.serve_until(stop))
    try:
        await gateway.settled.wait()
        if gateway.is_ready:
            yield gateway.url
            return
    finally:
        stop.set()
        await serving
    raise GatewayError(gateway.failure)


def _shown(config: GatewayConfig, *, only_changed: bool = False) -> dict[str, object]:
    settings = [item for item in config_fields() if not item.is_secret]
    values = {item.name: getattr(config, item.name) for item in settings}
    if only_changed:
        values = {item.name: values[item.name] for item in settings if values[item.name] != item.default}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
