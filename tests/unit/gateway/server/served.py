"""A socket of a test's with all behind it that a server has, over FakeEngine."""

from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.server.conversations.admission import Admission
from voicegate.gateway.server.conversations.binding import Binding
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.dispatch import Dispatcher
from voicegate.gateway.server.conversations.resumption import Resumption
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.conversations.translation import DialectTranslator
from voicegate.gateway.server.metrics.meters import Meters
from voicegate.gateway.server.websocket.connection import Connection
from voicegate.gateway.session.continuity import ResumeLimits
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import NOBODY, Quotas
from voicegate.gateway.session.waiting import WaitingLimits
from voicegate.protocol.dialects.dialect import Dialect


def services_of(engine: FakeEngine) -> Services:
    admission, meters = Admission(engine, WaitingLimits()), Meters(CollectorRegistry())
    return Services(engine, Dispatcher(engine), admission, SessionLimits(), Quotas(), meters)


@dataclass(frozen=True)
class Served:
    engine: FakeEngine
    dispatcher: Dispatcher
    connection: Connection


async def serve(websocket: Any, dialect: Dialect | None = None) -> Served:
    """Neither dispatcher nor connection run yet. `dialect` None: the native protocol."""
    engine = FakeEngine()
    await engine.start()
    services = services_of(engine)
    resumption = Resumption(ResumeLimits(), services.quotas)

    def converse(token: str = "") -> Conversation:
        return Conversation(services, session_id="s", info=engine.info, owner=NOBODY, token=token)

    if dialect is None:
        binding = resumption.begin(converse)
    else:
        binding = Binding(converse(), DialectTranslator(dialect, lambda tag: tag))
    return Served(engine, services.dispatcher, Connection(websocket, binding, resumption))
