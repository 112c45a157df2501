"""One request to an ASGI app, without sockets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message

from tests.unit.gateway.server.served import services_of
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.auth.access import Access
from voicegate.gateway.auth.keyring import Key
from voicegate.gateway.server.conversations.guests import Guests
from voicegate.gateway.server.entrance.sites import Sites
from voicegate.gateway.server.http.clones import Clones
from voicegate.gateway.server.http.enrolment import Enrolment
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.visitor import Visitor
from voicegate.gateway.server.status import Status
from voicegate.gateway.session.quota import Bound, Excess, Holding
from voicegate.gateway.session.voice_names import VoiceNames


def stage_of(status: Status, sites: Sites, access: Access | None = None) -> Stage:
    engine = FakeEngine()
    access = access or Access(None, b"")
    enrolment = Enrolment(access, is_allowed=False, max_voices=256)
    return Stage(
        lambda: status,
        sites,
        access,
        services_of(engine),
        Guests(),
        VoiceNames(),
        max_body_bytes=1000,
        enrolment=enrolment,
        clones=Clones(engine, enrolment),
    )


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


def _admit_nobody(_forwarded_for: Sequence[str], _key: Key | None) -> Excess:
    return Excess(Holding.SOCKET, 0, Bound.SERVER)


def _abort() -> None:
    raise AssertionError("nothing of this is cut")


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
        "state": {"visitor": Visitor(admit=_admit_nobody, abort=_abort)},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *bodies = sent
    return Answer(start["status"], Headers(raw=start["headers"]), b"".join(part["body"] for part in bodies))
