"""Services that all conversations of a server share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from voicegate.engine.interface import Engine
from voicegate.gateway.pronunciations import Pronunciations
from voicegate.gateway.server.conversations.admission import Admission
from voicegate.gateway.server.conversations.dispatch import Dispatcher
from voicegate.gateway.server.metrics.meters import Meters
from voicegate.gateway.session.observer import Observer
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import Quotas

# An observer for a conversation whose client names this trace parent.
Trace = Callable[[str | None], Observer]


@dataclass(frozen=True, slots=True)
class Services:
    engine: Engine
    dispatcher: Dispatcher
    admission: Admission
    limits: SessionLimits
    quotas: Quotas
    meters: Meters
    trace: Trace | None = None
    pronunciations: Pronunciations = field(default_factory=lambda: Pronunciations(None))
