"""The gateway's process: the real gateway over a Metronome, on one core; says on its output what it used.

    python -m voicegate.bench.gateway.server --chunk-ms 40 --max-streams 400 [--core 0]

Prints its URL; for each line on its input, its CPU times; ends with its input.
"""

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

import uvloop

from voicegate.bench.gateway.metronome import Metronome
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.logs import configure_logs
from voicegate.gateway.server.run import running_gateway


def _rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


async def _serve(options: argparse.Namespace) -> None:
    engine = Metronome(chunk_ms=options.chunk_ms, max_utterances=options.max_streams, is_prompt=options.prompt)
    config = GatewayConfig(max_sockets=options.max_streams + 8)
    async with running_gateway(config, engine) as url:
        gc.collect()
        gc.freeze()  # as an engine does when it is loaded
        print(url, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            kernel_s = resource.getrusage(resource.RUSAGE_THREAD).ru_stime
            used = {
                "event_loop_s": time.thread_time(),
                "event_loop_kernel_s": kernel_s,
                "metronome_s": engine.cpu_s,
                "rss_mib": _rss_mib(),
            }
            print(json.dumps(used), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunk-ms", type=int, required=True)
    parser.add_argument("--max-streams", type=int, required=True)
    parser.add_argument(
        "--prompt", action="store_true", help="utterances speak at once, not each at a moment of its own"
    )
    parser.add_argument("--core", type=int, help="the core that it runs on (default: any)")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    configure_logs("info", "json", GatewayConfig().log_lines_per_s)
    threading.current_thread().name = "event-loop"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options))


if __name__ == "__main__":
    main()
