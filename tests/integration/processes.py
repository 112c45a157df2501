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
    """This interpreter with `arguments`; `options` are of create_subprocess_exec. Raises TimeoutError.

    A test that fails meanwhile shows what it printed.
    """
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, **options)
    has_failed = True
    try:
        async with asyncio.timeout(within_s):
            yield process
        has_failed = False
    finally:
        is_running = process.returncode is None
        if is_running:
            process.kill()
        if is_running or has_failed:
            # `wait` alone would not see its end past a full pipe.
            printed = await process.communicate()
            if has_failed:
                sys.stderr.writelines(text.decode(errors="replace") for text in printed if text)
