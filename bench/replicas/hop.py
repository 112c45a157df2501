"""Cost of the way between a front and an engine process, on CPUs alone: one engine here, and one behind a channel.

Packets: made in the engine's thread -> in the front's event loop. Calls: flush called -> its answer in the loop, there
and back. The engine's own part (its thread wakes this loop, or the process's) is in both; the difference is the hop.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import uvloop

from voicegate.bench.gateway.metronome import STAMP
from voicegate.bench.replicas.engine_process import Answering
from voicegate.clients.bench.stats import summary
from voicegate.engine.interface import AudioReady, Engine, Flushed, UtteranceId, UtteranceRequest
from voicegate.engine.process.front import RoutingEngine
from voicegate.engine.process.keeper import Site, launched

_MODULE: Final = "voicegate.bench.replicas.engine_process"
_WARM_UP_S: Final = 1.0
_CALLS_PER_S: Final = 100


def measure(num_streams: int, *, chunk_ms: int, seconds: float) -> dict[str, Any]:
    """One row: milliseconds here, behind a channel, and what the median and the 95th percentile differ by."""
    here = _measured(Answering(num_streams, chunk_ms), num_streams, seconds)
    behind = _measured(_behind(num_streams, chunk_ms), num_streams, seconds)
    added = {
        way: {each: round(behind[way][each] - here[way][each], 3) for each in ("p50", "p95")}
        for way in ("packets_ms", "calls_ms")
    }
    return {"streams": num_streams, "here": here, "behind": behind, "added": added}


def _behind(num_streams: int, chunk_ms: int) -> Engine:
    greeting = msgspec.json.encode((num_streams, chunk_ms))
    return RoutingEngine([Site("only", lambda end: launched(_MODULE, "only", end, {}), greeting)])


def _measured(engine: Engine, num_streams: int, seconds: float) -> Mapping[str, Any]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(engine, num_streams, seconds))


class _Ear:
    """Hears an engine, and keeps how late it hears, in nanoseconds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.packets_ns: list[int] = []
        self.calls_ns: list[int] = []

    async def listen(self) -> None:
        """Until it is cancelled."""
        while True:
            match await self._engine.next_event():
                case AudioReady(packets=packets):
                    (made_ns,) = STAMP.unpack_from(packets[0])
                    self.packets_ns.append(time.monotonic_ns() - made_ns)
                case Flushed(flush_id=called_ns):
                    self.calls_ns.append(time.monotonic_ns() - int(called_ns))
                case _:  # words
                    pass

    def forget(self) -> None:
        self.packets_ns.clear()
        self.calls_ns.clear()


async def _measure(engine: Engine, num_streams: int, seconds: float) -> Mapping[str, Any]:
    await engine.start()
    names = [UtteranceId(f"u{number}") for number in range(num_streams)]
    for name in names:
        engine.submit(UtteranceRequest(name, "tick"))
    ear = _Ear(engine)
    listening = asyncio.create_task(ear.listen())
    await asyncio.sleep(_WARM_UP_S)
    ear.forget()
    began_cpu_s = time.process_time()
    for number in range(round(seconds * _CALLS_PER_S)):
        engine.flush_text(names[number % num_streams], str(time.monotonic_ns()))
        await asyncio.sleep(1 / _CALLS_PER_S)
    cpu_s = time.process_time() - began_cpu_s
    listening.cancel()
    await asyncio.wait({listening})
    await engine.close()
    return {"packets_ms": _ms(ear.packets_ns), "calls_ms": _ms(ear.calls_ns), "cores": round(cpu_s / seconds, 3)}


def _ms(values_ns: Sequence[int]) -> Mapping[str, Any]:
    told = summary([value / 1e6 for value in values_ns], digits=3)
    assert told is not None, "packets and answers come all the time"
    return told
