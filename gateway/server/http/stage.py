"""Services that handlers of requests share, beyond the request itself."""

from collections.abc import Callable
from dataclasses import dataclass

from voicegate.gateway.auth.access import Access
from voicegate.gateway.server.conversations.guests import Guests
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.entrance.sites import Sites
from voicegate.gateway.server.http.clones import Clones
from voicegate.gateway.server.http.enrolment import Enrolment
from voicegate.gateway.server.jobs.jobs import Jobs
from voicegate.gateway.server.status import Status
from voicegate.gateway.session.voice_names import VoiceNames


@dataclass(frozen=True, slots=True)
class Stage:
    status: Callable[[], Status]
    sites: Sites
    access: Access
    services: Services
    guests: Guests
    voice_names: VoiceNames
    max_body_bytes: int  # of a request that is no upload
    enrolment: Enrolment
    clones: Clones
    jobs: Jobs | None = None  # None: none are taken
