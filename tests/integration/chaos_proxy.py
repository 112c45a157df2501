"""A TCP proxy that does to a connection what networks do: delays, splits, joins, swallows and cuts, by a seed."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from voicegate.gateway.server.entrance.accepting import stop_accepting

# Bytes of one connection, in both directions together, until it is cut: so a listener's second of Opus is 4 kB.
_MEAN_LIFE_BYTES = 8_000
_DELAY_S = 0.002


class ChaosProxy:
    """`is_wild` False: it passes everything on as it comes. `num_cuts`: connections that it ended."""

    def __init__(self, url: str, seed: int) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._path = parts.path
        self._random = random.Random(seed)
        self._connections: set[asyncio.Task[None]] = set()
        self.url = ""
        self.is_wild = False
        self.num_cuts = 0

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Called as the connection is made: a task that `cut` cancels before it first ran would leave its writer open.
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(*self._target)
        life = [self._random.expovariate(1 / _MEAN_LIFE_BYTES)]
        there = asyncio.create_task(self._pump(reader, back_writer, life))
        back = asyncio.create_task(self._pump(back_reader, writer, life))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            for side in (writer, back_writer):
                side.transport.abort()
                with suppress(OSError):
                    await side.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, life: list[float]) -> None:
        """Returns when the connection is to be cut; what has come by then and was not passed on is lost."""
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.is_wild and self._random.random() < 0.2:
                    await asyncio.sleep(self._random.random() * _DELAY_S)  # more comes meanwhile, and is joined
                for piece in self._split(data):
                    life[0] -= len(piece) * self.is_wild
                    writer.write(piece[: len(piece) + min(0, int(life[0]))])
                    await writer.drain()
                    if life[0] < 0:
                        self.num_cuts += 1
                        return

    def _split(self, data: bytes) -> list[bytes]:
        if not self.is_wild or self._random.random() < 0.5:
            return [data]
        cuts = sorted(self._random.randrange(len(data) + 1) for _ in range(self._random.randrange(1, 4)))
        return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    async def cut(self) -> None:
        """Whatever is connected now."""
        cut = list(self._connections)
        for connection in cut:
            connection.cancel()
        await asyncio.gather(*cut, return_exceptions=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ChaosProxy"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}{self._path}"
        try:
            yield self
        finally:
            await stop_accepting(server.sockets)
            server.close()
            await self.cut()
            await server.wait_closed()
