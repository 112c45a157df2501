"""Waiting for what a thread changes without telling the event loop."""

import asyncio
from collections.abc import Callable

from tests.support.patience import PATIENCE_S


async def until(is_so: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0)
