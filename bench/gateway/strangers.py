"""A process of clients that mean no good, or do not care: they come and go, send as fast as they may, or ask and wait.

    python -m voicegate.bench.gateway.strangers ws://... --visits-per-s 250 --flooders 8 --askers 1

Prints a line when it has begun; then for the first line on its input begins to count, for the second prints what it
counted, and ends.
"""

import argparse
import asyncio
import json
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from voicegate.bench.gateway.clients import Counting, run
from voicegate.bench.gateway.frames import BINARY, PING, PONG, TEXT, client_frame, frame_at, handshake, text_frame

# A client's own address has 28,000 ports a minute, which is as long as the kernel keeps one that was closed.
_NUM_ADDRESSES: Final = 16
_PATIENCE_S: Final = 10.0
_TICK_S: Final = 0.002
_ASK_EVERY_S: Final = 0.05

_OPEN_AND_SPEAK: Final = text_frame({"type": "open", "context": "a"}) + text_frame(
    {"type": "text", "context": "a", "text": "word, "}
)
_CANCEL: Final = text_frame({"type": "cancel", "context": "a"})
_CHEAP: Final = 200 * text_frame({"type": "ping"})


@dataclass(slots=True)
class Tally(Counting):
    num_begun: int = 0  # visits, whatever became of them
    num_visits: int = 0
    num_refused: int = 0  # visits that the server had no room for, and said so
    num_failed: int = 0
    num_floods_over: int = 0
    first_audio_ms: list[float] = field(default_factory=list)


class NoRoom(ConnectionError):
    """The server is full, and says so."""


class Stranger(asyncio.Protocol):
    """A stranger that answers pings, and waits for one frame at a time, the server's greeting first."""

    def __init__(self, url: SplitResult) -> None:
        self._request = handshake(url.path, url.netloc)
        self._buffer = b""
        self._is_upgraded = False
        self._awaited: tuple[int, bytes] | None = (TEXT, b'"ready"')
        self._news = asyncio.get_running_loop().create_future()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.is_over = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        self.transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        self._may_write.set()
        self._fail(ConnectionError("the server closed the connection"))

    def _fail(self, error: ConnectionError) -> None:
        if not self._news.done():
            self._news.set_exception(error)
            self._news.exception()  # whoever waits is told; nobody has to

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data
        if not self._is_upgraded:
            head, end, buffer = buffer.partition(b"\r\n\r\n")
            if not end:
                self._buffer = head
                return
            status = head.split(b"\r\n")[0]
            if b" 101 " not in status:
                if b" 503 " in status:
                    self._fail(NoRoom(status.decode()))
                self.transport.abort()
                return
            self._is_upgraded = True
        position = 0
        while (frame := frame_at(buffer, position)) is not None:
            first_byte, start, position = frame
            if first_byte == PING:
                self.transport.write(client_frame(PONG, buffer[start:position]))
            elif self._is_awaited(first_byte, buffer[start:position]):
                self._news.set_result(None)
        self._buffer = buffer[position:]

    def _is_awaited(self, first_byte: int, payload: bytes) -> bool:
        """Not where nobody waits any more: their time is over."""
        if self._awaited is None or self._news.done():
            return False
        return first_byte == self._awaited[0] and self._awaited[1] in payload

    def write(self, data: bytes) -> None:
        """Raises ConnectionError: uvloop has no better word than RuntimeError for a transport that is gone."""
        if self.is_over:
            raise ConnectionError("the server closed the connection")
        self.transport.write(data)

    async def write_in_turn(self, data: bytes) -> None:
        """When what was written before is nearly gone. Raises ConnectionError."""
        await self._may_write.wait()
        self.write(data)

    async def until(self, first_byte: int, part: bytes) -> None:
        """To be called before it can have come. Raises ConnectionError, TimeoutError."""
        if self.is_over:
            raise ConnectionError("the server closed the connection")
        self._news = asyncio.get_running_loop().create_future()
        self._awaited = (first_byte, part)
        await self._wait()

    async def until_greeted(self) -> None:
        """Raises ConnectionError, TimeoutError."""
        await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._news
        finally:
            self._awaited = None


class Strangers:
    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        assert self._url.hostname is not None
        assert self._url.port is not None
        self._where = (self._url.hostname, self._url.port)
        self._addresses = random.sample(range(2, 250), _NUM_ADDRESSES)
        self.tally = Tally()

    async def _arrive(self) -> Stranger:
        _, stranger = await asyncio.get_running_loop().create_connection(
            lambda: Stranger(self._url),
            *self._where,
            local_addr=(f"127.0.0.{random.choice(self._addresses)}", 0),
        )
        try:
            await stranger.until_greeted()
        except BaseException:
            stranger.transport.abort()
            raise
        return stranger

    async def _visit(self) -> None:
        """A socket, a context, a word, a cancel, and gone."""
        self.tally.num_begun += self.tally.is_counting
        try:
            stranger = await self._arrive()
            try:
                stranger.write(_OPEN_AND_SPEAK + _CANCEL)
                await stranger.until(TEXT, b'"cancelled"')
            finally:
                stranger.transport.close()
        except NoRoom:
            self.tally.num_refused += self.tally.is_counting
        except (OSError, TimeoutError):
            self.tally.num_failed += self.tally.is_counting
        else:
            self.tally.num_visits += self.tally.is_counting

    async def visit(self, visits_per_s: float, most_at_once: int) -> None:
        """`most_at_once`: lower holds them back where the server is slow; higher has more of them there."""
        visits, began_s, number = set[asyncio.Task[None]](), time.monotonic(), 0
        async with asyncio.TaskGroup() as tasks:
            while True:
                while number < (time.monotonic() - began_s) * visits_per_s and len(visits) < most_at_once:
                    visit = tasks.create_task(self._visit())
                    visits.add(visit)
                    visit.add_done_callback(visits.discard)
                    number += 1
                await asyncio.sleep(_TICK_S)

    async def flood(self) -> None:
        """Again and again: whoever does it for long is closed."""
        while True:
            try:
                stranger = await self._arrive()
            except (OSError, TimeoutError):
                await asyncio.sleep(_TICK_S)
                continue
            with suppress(OSError):
                while True:
                    await stranger.write_in_turn(_CHEAP)
                    await asyncio.sleep(0)
            self.tally.num_floods_over += self.tally.is_counting

    async def ask(self) -> None:
        """One who wants to hear something, and comes again where that fails."""
        while True:
            try:
                await self._ask_again_and_again(await self._arrive())
            except (OSError, TimeoutError):
                self.tally.num_failed += self.tally.is_counting
                await asyncio.sleep(_TICK_S)

    async def _ask_again_and_again(self, stranger: Stranger) -> None:
        """From the first word to the first packet, turn after turn."""
        while True:
            asked_s = time.monotonic()
            stranger.write(_OPEN_AND_SPEAK)
            await stranger.until(BINARY, b"")
            if self.tally.is_counting:
                self.tally.first_audio_ms.append(round((time.monotonic() - asked_s) * 1000, 3))
            stranger.write(_CANCEL)
            await stranger.until(TEXT, b'"cancelled"')
            await asyncio.sleep(_ASK_EVERY_S)


async def _be(options: argparse.Namespace) -> None:
    strangers = Strangers(options.url)
    tally = strangers.tally
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(strangers.flood()) for _ in range(options.flooders)]
        running += [tasks.create_task(strangers.ask()) for _ in range(options.askers)]
        if options.visits_per_s:
            running.append(tasks.create_task(strangers.visit(options.visits_per_s, options.visits_at_once)))
        print("begun", flush=True)
        window = await tally.window()
        counted = {
            "num_begun": tally.num_begun,
            "num_visits": tally.num_visits,
            "num_refused": tally.num_refused,
            "num_failed": tally.num_failed,
            "num_floods_over": tally.num_floods_over,
            "first_audio_ms": tally.first_audio_ms,
            **window,
        }
        print(json.dumps(counted), flush=True)
        for task in running:
            task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits-per-s", type=float, default=0.0)
    parser.add_argument("--visits-at-once", type=int, default=100, help="at most (default: 100)")
    parser.add_argument("--flooders", type=int, default=0)
    parser.add_argument("--askers", type=int, default=0)
    run(parser, _be)


if __name__ == "__main__":
    main()
