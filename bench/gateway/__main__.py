"""The gateway's own cost: CPU a message and a stream, and the time that it adds between engine and client.

    python -m voicegate.bench.gateway [--json FILE] [--streams 1 100 400 1000] [--loads served fine] [--seconds 10]

The real gateway on one core, over an engine that costs nothing (metronome.py); its clients in processes of their own
on the other cores. `served` is what a GPU's engine sends: a message with 50 packets a second and its words, while 20
words a second come in. `fine` is 25 messages of 2 packets a second and no text: the way from packet to socket.
"""

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voicegate.bench import results_file
from voicegate.bench.gateway.processes import SERVER_CORE, ask, asked, conditions, end, line_of, start
from voicegate.clients.bench import environment
from voicegate.clients.bench.stats import summary

_STREAMS_PER_PROCESS: Final = 100
_WARM_UP_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    chunk_ms: int
    texts_per_s: float


LOADS: Final = {"served": Load(1000, 20), "fine": Load(40, 0)}


async def measure(name: str, num_streams: int, *, seconds: float) -> dict[str, Any]:
    load = LOADS[name]
    core = ("--core", str(SERVER_CORE))
    async with AsyncExitStack() as processes:
        server = await start("server", "--chunk-ms", str(load.chunk_ms), "--max-streams", str(num_streams), *core)
        processes.push_async_callback(end, server)
        url = await line_of(server)
        clients = []
        for first in range(0, num_streams, _STREAMS_PER_PROCESS):
            size = min(_STREAMS_PER_PROCESS, num_streams - first)
            words = ("--texts-per-s", str(load.texts_per_s), "--not-on-core", str(SERVER_CORE))
            client = await start("listeners", url, "--streams", str(size), *words)
            processes.push_async_callback(end, client)
            clients.append(client)
        for client in clients:
            await line_of(client)
        await asyncio.sleep(_WARM_UP_S)
        for client in clients:
            await ask(client)
        before = await asked(server)
        await asyncio.sleep(seconds)
        after = await asked(server)
        counted = [await asked(client) for client in clients]
    return _row(name, num_streams, counted, {key: after[key] - before[key] for key in after}, seconds)


def _row(name: str, num_streams: int, counted: list[Any], used_s: dict[str, float], seconds: float) -> dict[str, Any]:
    load = LOADS[name]
    latencies_ms = [each for client in counted for each in client["latencies_ms"]]
    window_s = max(client["window_s"] for client in counted)
    messages_per_s = len(latencies_ms) / window_s
    texts_per_s = sum(client["num_texts"] for client in counted) / window_s
    loop = used_s["event_loop_s"] / seconds
    return {
        "load": name,
        "streams": num_streams,
        "audio_messages_per_s": round(messages_per_s, 1),
        "packets_per_s": round(messages_per_s * load.chunk_ms / 20, 1),
        "texts_per_s": round(texts_per_s, 1),
        "other_messages_per_s": round(sum(client["num_other_messages"] for client in counted) / window_s, 1),
        "event_loop_cores": round(loop, 4),
        "event_loop_kernel_cores": round(used_s["event_loop_kernel_s"] / seconds, 4),
        "event_loop_us_per_audio_message": round(loop / messages_per_s * 1e6, 2),
        "event_loop_us_per_stream_second": round(loop / num_streams * 1e6, 1),
        "metronome_cores": round(used_s["metronome_s"] / seconds, 4),
        "added_ms": summary(latencies_ms, digits=3),
        "busiest_client_cores": round(max(client["cpu"] for client in counted), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 100, 400, 1000])
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, of each row (default: 10)")
    options = parser.parse_args()
    report: dict[str, Any] = {"environment": environment.describe(), "conditions": conditions(), "rows": []}
    for name in options.loads:
        for num_streams in options.streams:
            row = asyncio.run(measure(name, num_streams, seconds=options.seconds))
            report["rows"].append(row)
            print(json.dumps(row), flush=True)
            results_file.save(report, options.json)


if __name__ == "__main__":
    main()
