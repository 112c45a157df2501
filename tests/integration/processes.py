"""A process beside a test, which does not outlive it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def python(
    *arguments: str, within_s: float | None = None, **options: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """This interpreter with `arguments`; `options` are of create_subprocess_exec. Raises TimeoutError."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, **options)
    try:
        async with asyncio.timeout(within_s):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()  # `wait` alone would not see its end past a full pipe
