"""A socket of a test's with all behind it that a server has, over FakeEngine."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from tests.unit.gateway.server.websocket.test_bounded_socket import Peer
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.server.conversations.admission import Admission
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.dispatch import Dispatcher
from voicegate.gateway.server.conversations.resumption import Resumption
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.metrics.meters import Meters
from voicegate.gateway.server.websocket.connection import Connection
from voicegate.gateway.session.continuity import ResumeLimits
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import NOBODY, Quotas
from voicegate.gateway.session.waiting import WaitingLimits


@dataclass(frozen=True)
class ServedPeer:
    engine: FakeEngine
    dispatcher: Dispatcher
    connection: Connection


async def serve(peer: Peer) -> ServedPeer:
    """Neither dispatcher nor connection run yet."""
    engine = FakeEngine()
    await engine.start()
    dispatcher, quotas = Dispatcher(engine), Quotas()
    meters = Meters(CollectorRegistry())
    services = Services(engine, dispatcher, Admission(engine, WaitingLimits()), SessionLimits(), quotas, meters)
    resumption = Resumption(ResumeLimits(), quotas)
    binding = resumption.begin(
        lambda token: Conversation(services, session_id="s", info=engine.info, owner=NOBODY, token=token)
    )
    return ServedPeer(engine, dispatcher, Connection(peer.socket, binding, resumption))
