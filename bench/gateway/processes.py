"""The bench's processes: each says on its output that it has begun, and answers lines on its input."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Any, Final

SERVER_CORE: Final = 0
_PATIENCE_S: Final = 30.0
_LONGEST_LINE_BYTES: Final = 256 * 1024 * 1024


def conditions() -> dict[str, Any]:
    """Conditions of a report, beside its environment."""
    return {
        "server_core": SERVER_CORE,
        "cores_of_clients": len(os.sched_getaffinity(0) - {SERVER_CORE}),
        "load_average_before": os.getloadavg()[0],
        "network": "loopback",
    }


async def start(module: str, *arguments: str) -> Process:
    command = (sys.executable, "-m", f"voicegate.bench.gateway.{module}", *arguments)
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_LONGEST_LINE_BYTES
    )


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE_S)
    except TimeoutError:
        raise SystemExit(f"a process of the bench has said nothing for {_PATIENCE_S:g} s") from None
    if not line:
        raise SystemExit(
            f"a process of the bench has ended with status {await process.wait()}; run it alone to see why"
        )
    return line.decode().strip()


async def ask(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    await process.stdin.drain()


async def asked(process: Process) -> Any:
    await ask(process)
    return json.loads(await line_of(process))


async def end(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
