"""Jobs that have not ended, as the runner sees them. Plain data."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.server.jobs.speaking import Speaking
from voicegate.gateway.session.adapting import adapted
from voicegate.protocol.dialects.one_shot import OneShot
from voicegate.protocol.dialects.openai_speech import OpenAiSpeech
from voicegate.protocol.messages import Open


@dataclass(slots=True, eq=False)
class LivePart:
    job: "LiveJob"
    number: int
    task: asyncio.Task[None] | None = None
    speaking: Speaking | None = None  # None: the engine does not have it yet


@dataclass(slots=True, eq=False)
class LiveJob:
    id: str
    owner: str
    shot: OneShot
    pre_skip_48k: int
    waiting: deque[int]  # numbers of parts
    num_running: int = 0
    failures: Counter[int] = field(default_factory=Counter)
    is_begun: bool = False
    is_over: bool = False

    @property
    def has_parts(self) -> bool:
        """Some are not done."""
        return bool(self.waiting) or self.num_running > 0


def shot_of(request: bytes) -> OneShot:
    """As it is stored: a body of /v1/audio/speech without its text. Raises ProtocolViolation."""
    return OpenAiSpeech().read(request, {}, {})


def opening_of(shot: OneShot, voice: str | None, info: EngineInfo) -> Open:
    """Raises ProtocolViolation."""
    opening = next(shot.messages(voice, 1))
    assert isinstance(opening, Open), "a context is opened first"
    return adapted(opening, info).message
