"""Tells others that a job has ended: one POST, signed as Standard Webhooks says, to addresses that the operator allows.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import asyncio
import base64
import binascii
import hmac
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import h11
import orjson

from voicegate import __version__
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.jobs.archive import Archive
from voicegate.gateway.server.jobs.ledger import JobRow
from voicegate.gateway.server.jobs.settings import QueueDown

# After each attempt, until the next; after the last there is none. Lower than the time-out sends twice at once.
DELAYS_S: Final = (30.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 0.0)
# For one attempt in all: a receiver should answer first, and work then.
_TIMEOUT_S: Final = 15.0
# Higher -> more sockets towards receivers that hang; lower -> one that hangs holds up others.
_MAX_AT_ONCE: Final = 8
_MAX_CHARS: Final = 2048
_READ_BYTES: Final = 1 << 14
# Reads, and answers such as 100 Continue, before the answer. Higher -> receivers that send these hold up live streams.
_MAX_EVENTS: Final = 100
_PORTS: Final = {"http": 80, "https": 443}
_SECRET_PREFIX: Final = "whsec_"
_LEAST_SECRET_BYTES: Final = 24

log = get_logger(__name__)


def is_address(url: str) -> bool:
    """Whether it can be meant in one way alone."""
    parts = _split(url)
    if parts is None or not url.isascii() or not url.isprintable() or any(char in url for char in " \\#@"):
        return False
    # Receivers may undo one %-sign more than we do.
    path = unquote(unquote(parts.path))
    # Some take what follows a semicolon for no part of the name.
    is_plain = "\\" not in path and not {".", ".."} & {name.partition(";")[0] for name in path.split("/")}
    return is_plain and parts.scheme in _PORTS and bool(parts.hostname)


def is_allowed(url: str, allowed: Sequence[str]) -> bool:
    """Whether it is one of these addresses, or below one."""
    return len(url) <= _MAX_CHARS and is_address(url) and any(_is_below(url, each) for each in allowed)


def _is_below(url: str, allowed: str) -> bool:
    asked, base = urlsplit(url), urlsplit(allowed)
    is_same = _origin(asked) == _origin(base)
    return is_same and f"{asked.path}/".startswith(f"{base.path.rstrip('/')}/")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises
    except ValueError:
        return None
    return parts


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def read_secret(text: str) -> bytes | None:
    """None: it is none, or too short."""
    try:
        secret = base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        return None
    return secret if len(secret) >= _LEAST_SECRET_BYTES else None


def signed(message_id: str, body: bytes, secret: bytes, now_s: int) -> dict[str, str]:
    digest = hmac.digest(secret, f"{message_id}.{now_s}.".encode() + body, "sha256")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


class Webhooks:
    """`look` from time to time; `described`: a job as clients see it."""

    def __init__(
        self, archive: Archive, allowed: Sequence[str], secret: bytes, described: Callable[[JobRow], dict[str, object]]
    ) -> None:
        self._archive = archive
        self._allowed = allowed
        self._secret = secret
        self._described = described
        self._sending: set[asyncio.Task[None]] = set()

    async def look(self) -> None:
        """Begin what is due. Raises QueueDown."""
        while len(self._sending) < _MAX_AT_ONCE:
            due = await self._archive.ask(lambda store: store.ledger.due_webhook(DELAYS_S))
            if due is None:
                return
            task = asyncio.create_task(self._send(*due))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Those that are on their way are sent again."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, job: JobRow, attempt: int) -> None:
        url = job.webhook or ""
        body = orjson.dumps(self._described(job))
        headers = signed(job.id, body, self._secret, int(time.time()))
        try:
            if not is_allowed(url, self._allowed):  # any more
                log.warning("a webhook is not sent", job=job.id, reason="--jobs-webhooks does not allow it any more")
            elif not 200 <= (status := await post(url, body, headers)) < 300:
                raise OSError(f"it answered {status}")
            await self._archive.ask(lambda store: store.ledger.note_webhook(job.id))
        except (OSError, h11.RemoteProtocolError, QueueDown) as error:
            reason, is_last = str(error) or type(error).__name__, attempt >= len(DELAYS_S)
            log.warning("a webhook failed", job=job.id, attempt=attempt, is_last=is_last, reason=reason)


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status of the answer, of which no more is read. Raises OSError, TimeoutError, h11.RemoteProtocolError."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", await _tls() if parts.scheme == "https" else None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    own = {
        "Host": parts.netloc,
        "User-Agent": f"voicegate/{__version__}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    request = h11.Request(method="POST", target=target, headers=list({**own, **headers}.items()))
    connection = h11.Connection(h11.CLIENT)
    sent = b"".join(connection.send(event) or b"" for event in (request, h11.Data(body), h11.EndOfMessage()))
    async with asyncio.timeout(_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, parts.port or _PORTS[parts.scheme], ssl=tls)
        try:
            writer.write(sent)
            for _ in range(_MAX_EVENTS):
                if isinstance(event := connection.next_event(), h11.Response):
                    return event.status_code
                if event is h11.NEED_DATA:
                    connection.receive_data(await reader.read(_READ_BYTES))
            raise OSError("its answer does not begin")
        finally:
            writer.transport.abort()


@cache
def _tls_once() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _tls() -> ssl.SSLContext:
    """Reads all authorities: not on the event loop."""
    return await asyncio.to_thread(_tls_once)
