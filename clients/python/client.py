"""The Python client: `connect` to a gateway, open contexts, feed text, read audio. Errors are in errors.py.

    async with connect("ws://127.0.0.1:8080") as gate:
        context = await gate.open(voice="woman")
        await context.say("Hello, ")     # as the LLM writes it
        await context.say("world.")
        await context.end()
        async for audio in context:
            play(audio.packets)

A socket that drops is replaced, and what was lost with it is sent again in both directions: contexts in flight notice
a delay at most. Where the server does not resume, or it took too long, they fail with ConnectionLost and nothing is
said twice; the next `open` connects again. A server that drains keeps its running contexts; new ones go to a fresh
connection.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypedDict, Unpack

from voicegate.clients.python.address import key_headers
from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.context import Context
from voicegate.clients.python.dialing import LinkOptions
from voicegate.clients.python.errors import (
    ConnectFailed,
    ConnectionLost,
    ContextClosed,
    ContextFailed,
    InvalidInput,
)
from voicegate.clients.python.link import Link, connect_link
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ErrorCode
from voicegate.protocol.messages import Format

# Connections that may drop, or start to drain, under one `open`, before it gives up.
_OPEN_ATTEMPTS: Final = 3


Text = str | AsyncIterable[str | None]  # whole, or as it is written


class OpenOptions(TypedDict, total=False):
    """Options of `Gate.open` and `Gate.speak`; those left out are the server's choice."""

    voice: str | None
    format: Format
    mode: Literal["auto", "incremental", "clause", "bistream"]
    speed: float
    seed: int | None
    instruct: str | None
    lead_ms: int | None
    burst_ms: int | None
    language: str | None
    normalize: bool
    max_buffer_delay_ms: int | None
    pronunciations: Mapping[str, str]
    context_id: str


class Gate:
    """One gateway, over as many sockets as it takes. Made by `connect`."""

    def __init__(self, url: str, *, link_options: LinkOptions, reconnect: bool, backoff: Backoff) -> None:
        self._url = url
        self._link_options = link_options
        self._reconnects = reconnect
        self._backoff = backoff
        self._link: Link | None = None
        self._retired: list[Link] = []  # their contexts may still speak
        self._connecting: asyncio.Task[Link] | None = None  # again, for all who wait for it
        self._closing: asyncio.Task[None] | None = None
        self._num_contexts = 0
        self.num_resumed = 0  # times that a connection dropped, and nothing was lost

    @property
    def ready(self) -> wire.Ready:
        """The server's greeting: model, voices, modes, limits."""
        assert self._link is not None, "a gate is entered before it is used"
        return self._link.ready

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment; without one it comes back by itself where it is needed."""
        return self._link is not None and self._link.is_up

    async def __aenter__(self) -> Self:
        """Raises ConnectFailed, after one attempt; ContextClosed where the gate is closed, or was so meanwhile."""
        if self._link is not None:  # `async with await connect(url)`: one connection, as one is closed
            await self._usable_link()
            return self
        link = self._link = await self._connect()
        if self._closing is not None:
            await link.close()
            raise ContextClosed("the gate is closed")
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        """`gate = await connect(url)` enters it too. To close it is then its user's."""
        return self.__aenter__().__await__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends every context that still runs, also where the waiting task is cancelled."""
        if self._closing is None:
            if self._connecting is not None:
                self._connecting.cancel()
            self._closing = asyncio.create_task(_close(self._links))
            self._retired.clear()
        # A cancelled task may be cancelled again at every step, as below anyio: a socket that is never closed would
        # speak on.
        await asyncio.shield(self._closing)

    async def open(self, **options: Unpack[OpenOptions]) -> Context:
        """A context that is ready for text. Raises ContextFailed, ConnectFailed, ConnectionLost, InvalidInput."""
        message = self._open_message(options)
        attempt = 1
        while True:
            link = await self._usable_link()
            try:
                return await link.open(message)
            except ConnectionLost:
                # Nothing was said yet, so nothing can be said twice.
                if not self._reconnects or attempt == _OPEN_ATTEMPTS:
                    raise
            except ContextFailed as error:
                is_going_away = link.is_draining and error.code == ErrorCode.OVERLOADED.value
                if not (self._reconnects and is_going_away) or attempt == _OPEN_ATTEMPTS:
                    raise
            attempt += 1

    async def speak(self, text: Text, **options: Unpack[OpenOptions]) -> AsyncGenerator[bytes]:
        """The packets of one text, given whole or as it is written. Leaving the loop early cancels the context."""
        check_text(text)
        context = await self.open(**options)
        feeding = asyncio.create_task(feed(context, text))
        try:
            async for audio in context:
                for packet in audio.packets:
                    yield packet
            await feeding
        finally:
            context.abandon()  # a leaver has no time, and perhaps no network
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    def _open_message(self, options: OpenOptions) -> wire.Open:
        if unknown := options.keys() - OpenOptions.__annotations__.keys():
            raise TypeError(f"{', '.join(sorted(unknown))}: a context has no such option")
        context_id: object = options["context_id"] if "context_id" in options else self._unused_id()
        if not (isinstance(context_id, str) and 1 <= len(context_id) <= 64 and context_id.isprintable()):
            raise InvalidInput(f"context_id {context_id!r} is not 1 to 64 printable characters")
        return wire.Open(
            context=context_id,
            voice=options.get("voice"),
            format=options.get("format", Format()),
            speed=options.get("speed", 1.0),
            instruct=options.get("instruct"),
            seed=options.get("seed"),
            mode=options.get("mode", "auto"),
            pace=wire.Pace(lead_ms=options.get("lead_ms"), burst_ms=options.get("burst_ms")),
            language=options.get("language"),
            normalize=options.get("normalize", True),
            max_buffer_delay_ms=options.get("max_buffer_delay_ms"),
            pronunciations=dict(options.get("pronunciations", {})),
        )

    @property
    def _links(self) -> list[Link]:
        return [*self._retired, *([] if self._link is None else [self._link])]

    def _unused_id(self) -> str:
        while True:
            context_id = f"c{self._num_contexts}"
            self._num_contexts += 1
            if not any(link.has(context_id) for link in self._links):
                return context_id

    async def _usable_link(self) -> Link:
        if self._closing is not None:
            raise ContextClosed("the gate is closed")
        if self._link is None:
            raise ContextClosed("the gate is not open yet: `async with connect(url) as gate`")
        if self._link.is_usable:
            return self._link
        if not self._reconnects:
            raise ConnectionLost("the connection to the gateway was lost, and reconnect is off")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._replace(self._link))
            self._connecting.add_done_callback(self._has_connected)
        connecting = self._connecting
        await asyncio.wait({connecting})  # a task that gives up here leaves it to the others
        if connecting.cancelled():
            raise ContextClosed("the gate is closed")
        return connecting.result()

    async def _replace(self, link: Link) -> Link:
        fresh = await self._connect_again()
        self._retired = [each for each in (*self._retired, link) if not each.is_lost]
        self._link = fresh
        return fresh

    def _has_connected(self, connecting: "asyncio.Task[Link]") -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # has been looked at, should no task wait any more

    async def _connect(self) -> Link:
        backoff = self._backoff if self._reconnects else None
        return await connect_link(self._url, self._link_options, backoff=backoff, on_resumed=self._note_resumed)

    def _note_resumed(self) -> None:
        self.num_resumed += 1

    async def _connect_again(self) -> Link:
        retry = 0
        while True:
            try:
                return await self._connect()
            except ConnectFailed as error:
                if not error.is_transient or self._backoff.gives_up(retry, error.retry_after_ms):
                    raise
                await asyncio.sleep(self._backoff.delay_s(retry, random.random(), error.retry_after_ms))
            retry += 1


async def _close(links: Sequence[Link]) -> None:
    await asyncio.gather(*(link.close() for link in links))


def connect(
    url: str,
    *,
    api_key: str | None = None,
    reconnect: bool = True,
    backoff: Backoff | None = None,
    ca_file: Path | None = None,
    link_options: LinkOptions | None = None,
) -> Gate:
    """To be entered: `async with connect(url) as gate`, or `gate = await connect(url)`.

    A url without a path means the protocol's own.

    Without `api_key` the environment's VOICEGATE_API_KEY is sent, if there is one. `ca_file`: who signs the server's
    certificate, where the system does not know them.
    """
    options = link_options or LinkOptions()
    headers = {**key_headers(api_key), **options.headers}
    options = replace(options, headers=headers, ca_file=ca_file or options.ca_file)
    return Gate(url, link_options=options, reconnect=reconnect, backoff=backoff or Backoff())


def check_text(text: object) -> None:
    """Raises InvalidInput for what `feed` cannot take."""
    if not isinstance(text, str | AsyncIterable):
        raise InvalidInput(
            f"text is a {type(text).__name__}; it must be str, or be iterated by `async for`:"
            " `iterate_in_thread` of voicegate.clients.python.threaded makes that of a blocking iterator"
        )


async def feed(context: Context, text: Text) -> None:
    """Say all of `text` and end. Where its source fails, the context is cancelled before the error goes on.

    Raises ContextFailed (`text_cancelled`) where the source's task was cancelled, and not this one.
    """
    try:
        if isinstance(text, str):
            await context.say(text)
        else:
            async for piece in text:
                await context.say(piece or "")  # pieces of an answer may be none
        await context.end()
    except BaseException as error:
        context.abandon()
        task = asyncio.current_task()
        is_ours = task is not None and task.cancelling() > 0
        if isinstance(error, asyncio.CancelledError) and not is_ours:
            raise ContextFailed("text_cancelled", "the task that writes the text was cancelled") from error
        raise
