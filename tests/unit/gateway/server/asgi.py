"""One request to an ASGI app, without sockets."""

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


async def ask(app: ASGIApp, path: str, method: str = "GET", *, body: bytes = b"", **headers: str) -> Answer:
    """`headers` with _ for -."""
    path, _, query = path.partition("?")
    named = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": named,
        "state": {},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *bodies = sent
    return Answer(start["status"], Headers(raw=start["headers"]), b"".join(part["body"] for part in bodies))
