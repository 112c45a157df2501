"""The engine and the gateway in this process: the composition root. Imports torch, so commands import it late."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voicegate.engine.interface import Engine
from voicegate.engine.load.build import create_engine
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.gateway.cli.engine_settings import engine_config
from voicegate.gateway.cli.terminal import CommandError
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.run import running_gateway


def build_engine(config: GatewayConfig, on_progress: Progress = SILENT) -> Engine:
    return create_engine(engine_config(config), on_progress=on_progress)


@asynccontextmanager
async def local_gateway(config: GatewayConfig, on_progress: Progress = SILENT) -> AsyncIterator[str]:
    """The URL of a gateway with the configured model, on a free loopback port and no other, without keys.

    Raises CommandError.
    """
    config = dataclasses.replace(
        config,
        api_key=None,
        api_keys_file=None,
        require_key=False,
        metrics_port=None,
        agent_port=None,
        wyoming_port=None,
    )
    try:
        async with running_gateway(config, build_engine(config, on_progress)) as url:
            yield url
    except GatewayError as error:
        raise CommandError(str(error)) from error
