"""Crowds: the cost of strangers for listeners. Connections that come and go, floods of cheap messages.

    python -m voicegate.bench.gateway.crowd [--json FILE] [--seconds 10] [--visits-per-s 1000] [--flooders 16]

The real gateway on one core over an engine that costs nothing; clients on raw sockets, in processes of their own on the
other cores. One of them asks for speech twenty times a second and looks at when it begins: alone, beside so many visits
a second (a socket, a context, a word, a cancel, and gone), and beside so many floods.
"""

import argparse
import asyncio
import json
from asyncio.subprocess import Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from voicegate.bench import results_file
from voicegate.bench.gateway.processes import SERVER_CORE, ask, asked, conditions, end, line_of, start
from voicegate.clients.bench import environment
from voicegate.clients.bench.stats import summary

_NUM_CROWD_PROCESSES: Final = 4
_MOST_AT_ONCE: Final = 1024
_WARM_UP_S: Final = 3.0


async def measure(
    *, visits_per_s: float = 0.0, visits_at_once: int = 400, num_flooders: int = 0, seconds: float
) -> dict[str, Any]:
    """`visits_at_once`: fewer than a crowd needs hold it back to what the server has CPU for."""
    async with AsyncExitStack() as processes:

        async def begin(module: str, *arguments: str) -> tuple[Process, str]:
            process = await start(module, *arguments)
            processes.push_async_callback(end, process)
            return process, await line_of(process)

        core = ("--core", str(SERVER_CORE))
        server, url = await begin(
            "server", "--chunk-ms", "1000", "--max-streams", str(_MOST_AT_ONCE), "--prompt", *core
        )
        others = ("--not-on-core", str(SERVER_CORE))
        asker, _ = await begin("strangers", url, "--askers", "1", *others)
        crowd = []
        for number in range(_NUM_CROWD_PROCESSES if visits_per_s or num_flooders else 0):
            share = (num_flooders + number) // _NUM_CROWD_PROCESSES
            visits = ["--visits-per-s", str(visits_per_s / _NUM_CROWD_PROCESSES)]
            visits += ["--visits-at-once", str(visits_at_once // _NUM_CROWD_PROCESSES)]
            crowd.append((await begin("strangers", url, *visits, "--flooders", str(share), *others))[0])
        await asyncio.sleep(_WARM_UP_S)
        for process in (asker, *crowd):
            await ask(process)
        before = await asked(server)
        await asyncio.sleep(seconds / 2)
        halfway = await asked(server)
        await asyncio.sleep(seconds / 2)
        after = await asked(server)
        counted = [await asked(process) for process in (asker, *crowd)]
    visited_per_s = sum(each["num_visits"] / each["window_s"] for each in counted)
    event_loop_cores = (after["event_loop_s"] - before["event_loop_s"]) / seconds
    return {
        "visits_per_s_asked": visits_per_s,
        "visits_per_s": round(visited_per_s, 1),
        "visits_begun": sum(each["num_begun"] for each in counted),
        "visits": sum(each["num_visits"] for each in counted),
        "visits_refused": sum(each["num_refused"] for each in counted[1:]),
        "visits_failed": sum(each["num_failed"] for each in counted[1:]),
        "askers_failed": counted[0]["num_failed"],
        "flooders": num_flooders,
        "floods_closed": sum(each["num_floods_over"] for each in counted),
        "first_audio_ms": summary(counted[0]["first_audio_ms"], digits=3),
        "event_loop_cores": round(event_loop_cores, 3),
        "event_loop_ms_per_visit": round(event_loop_cores / visited_per_s * 1000, 3) if visited_per_s else None,
        "server_rss_mib": [round(used["rss_mib"], 1) for used in (before, halfway, after)],
        "busiest_client_cores": round(max(each["cpu"] for each in counted), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, of each row (default: 10)")
    parser.add_argument("--visits-per-s", type=float, default=1000.0)
    parser.add_argument("--flooders", type=int, default=16)
    options = parser.parse_args()
    report: dict[str, Any] = {"environment": environment.describe(), "conditions": conditions(), "rows": []}
    for crowd in ({}, {"visits_per_s": options.visits_per_s}, {"num_flooders": options.flooders}):
        report["rows"].append(asyncio.run(measure(**crowd, seconds=options.seconds)))
        print(json.dumps(report["rows"][-1]), flush=True)
        results_file.save(report, options.json)


if __name__ == "__main__":
    main()
