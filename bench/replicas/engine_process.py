"""An engine process that costs next to nothing: a Metronome, which also answers flushes at once.

`python -m voicegate.bench.replicas.engine_process NAME DESCRIPTOR`, started by `hop` alone.
"""

import asyncio
import os
import socket
import sys

import msgspec
import uvloop

from voicegate.bench.gateway.metronome import Metronome
from voicegate.engine.interface import Engine, Flushed, UtteranceId
from voicegate.engine.load.progress import Progress
from voicegate.engine.process.child import FrontGone, serve_engine


class Answering(Metronome):
    def __init__(self, num_streams: int, chunk_ms: int) -> None:
        super().__init__(chunk_ms=chunk_ms, max_utterances=num_streams)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        self._publish([Flushed(utterance_id, flush_id, 0)])


async def _run(end: socket.socket) -> None:
    def make(greeting: bytes, _progress: Progress) -> Engine:
        return Answering(*msgspec.json.decode(greeting, type=tuple[int, int]))

    try:
        status = await serve_engine(end, make)
    except FrontGone:
        status = 1
    os._exit(status)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(socket.socket(fileno=int(sys.argv[2]))))
