"""A process of clients: each has one socket and one context, writes words, and looks at when its packets were made.

    python -m voicegate.bench.gateway.listeners ws://... --streams 50 --texts-per-s 20

Prints a line when all speak; then for the first line on its input
begins to count, for the second prints what it counted, and ends.
"""

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import urlsplit

from voicegate.bench.gateway.clients import Counting, run
from voicegate.bench.gateway.frames import BINARY, PING, PONG, client_frame, frame_at, handshake, text_frame
from voicegate.bench.gateway.metronome import STAMP

# Behind the audio message's head and the length of its first packet (docs/protocol.md section 5).
_STAMP_OFFSET: Final = 14
_TICK_S: Final = 0.002


_OPEN: Final = text_frame({"type": "open", "context": "a"})
_WORD: Final = text_frame({"type": "text", "context": "a", "text": "word, "})


@dataclass(slots=True)
class Tally(Counting):
    latencies_ns: list[int] = field(default_factory=list)
    num_texts: int = 0
    num_other_messages: int = 0


class Listener(asyncio.Protocol):
    def __init__(self, target: str, host: str, tally: Tally) -> None:
        self._request = handshake(target, host)
        self._tally = tally
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._is_upgraded = False
        self.speaks: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.speaks.done():
            self.speaks.set_exception(ConnectionError("the server closed the connection"))

    def write_word(self) -> None:
        assert self._transport is not None
        self._transport.write(_WORD)

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        assert self._transport is not None
        buffer = self._buffer + data
        if not self._is_upgraded:
            head, end, buffer = buffer.partition(b"\r\n\r\n")
            if not end:
                self._buffer = head
                return
            if b" 101 " not in head.split(b"\r\n")[0]:
                raise ConnectionError(head.decode())
            self._is_upgraded = True
            self._transport.write(_OPEN + _WORD)
        position = 0
        while (frame := frame_at(buffer, position)) is not None:
            first_byte, start, position = frame
            self._take(first_byte, buffer, start, position, now_ns)
        self._buffer = buffer[position:]

    def _take(self, first_byte: int, buffer: bytes, start: int, end: int, now_ns: int) -> None:
        if first_byte == BINARY:
            if not self.speaks.done():
                self.speaks.set_result(None)
            if self._tally.is_counting:
                self._tally.latencies_ns.append(now_ns - STAMP.unpack_from(buffer, start + _STAMP_OFFSET)[0])
        elif first_byte == PING:
            assert self._transport is not None
            self._transport.write(client_frame(PONG, buffer[start:end]))
        else:
            self._tally.num_other_messages += self._tally.is_counting


async def _write_words(listeners: list[Listener], texts_per_s: float, tally: Tally) -> None:
    """Each at a pace of its own, as agents' LLMs write."""
    if not texts_per_s:
        return
    start_s = time.monotonic()
    due_s = [start_s + random.random() / texts_per_s for _ in listeners]
    while True:
        now_s = time.monotonic()
        for index, listener in enumerate(listeners):
            if due_s[index] <= now_s:
                due_s[index] += 1 / texts_per_s
                listener.write_word()
                tally.num_texts += tally.is_counting
        await asyncio.sleep(_TICK_S)


async def _listen(options: argparse.Namespace) -> None:
    url, tally, loop = urlsplit(options.url), Tally(), asyncio.get_running_loop()
    listeners = []
    for _ in range(options.streams):
        _, listener = await loop.create_connection(
            lambda: Listener(url.path, url.netloc, tally), url.hostname, url.port
        )
        listeners.append(listener)
    await asyncio.gather(*(listener.speaks for listener in listeners))
    writing = asyncio.create_task(_write_words(listeners, options.texts_per_s, tally))
    print("all speak", flush=True)
    window = await tally.window()
    writing.cancel()
    counted = {
        "latencies_ms": [round(each / 1e6, 4) for each in tally.latencies_ns],
        "num_texts": tally.num_texts,
        "num_other_messages": tally.num_other_messages,
        **window,
    }
    print(json.dumps(counted), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--texts-per-s", type=float, required=True, help="of each")
    run(parser, _listen)


if __name__ == "__main__":
    main()
