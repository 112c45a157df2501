"""Utterances and models as a Roster sees them, without text, sound or arithmetic."""

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.guard import Guard
from voicegate.engine.core.look import Look
from voicegate.engine.core.policy import Due, Limits
from voicegate.engine.core.reprefills import Reprefills
from voicegate.engine.core.roster import Roster, Waiting
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import UtteranceId


class StubModels:
    """Stands for the pipeline: every active clause can go on."""

    def block_frames(self, clause: Clause) -> int:
        return 50 if clause.rendering is not None else 0

    def num_blocks(self, clause: Clause) -> int:
        return 1 if clause.rendering is not None else 0

    def num_missing_tokens(self, clause: Clause) -> int:
        return 0

    def can_generate(self, clause: Clause) -> bool:
        return clause.rendering is not None


class Looked:
    """A roster that is asked behind a look at all who have changed, as the core asks it."""

    def __init__(self, config: EngineConfig, limits: Limits, models: Any) -> None:
        self.models = models
        self.roster = Roster(limits)
        readings = Reprefills(config, lookahead_tokens=3, held_back_frames=4)
        self.guarding = Guard(self.roster, self._fail)
        self.look = Look(config, models, readings, self.roster, self.guarding)

    def _fail(self, utterance: Utterance, message: str) -> None:
        raise AssertionError(message)

    def due(self, now_s: float) -> Due:
        self.look.at_changed(now_s)
        self.roster.note_load()
        self.look.at_changed(now_s)
        return self.roster.due

    def waiting(self, now_s: float, *, only_pressing: bool) -> list[Waiting]:
        self.look.at_changed(now_s)
        return self.roster.waiting(now_s, only_pressing=only_pressing)

    def stalled(self, now_s: float) -> list[Utterance]:
        self.look.at_changed(now_s)
        return self.roster.stalled

    def next_alarm_s(self, now_s: float) -> float | None:
        self.look.at_changed(now_s)
        return self.roster.next_alarm_s(now_s)

    def note_room(self, now_s: float) -> None:
        self.look.at_changed(now_s)
        self.roster.note_room()


def stub_utterance(
    roster: Roster,
    *,
    since_s: float = 1.0,
    deadline_s: float | None = None,
    lead_ms: int | None = None,
    stalls_s: float = math.inf,
) -> Any:
    listing = roster.new_listing()
    return SimpleNamespace(
        listing=listing,
        utterance_id=UtteranceId(str(listing.key)),
        clauses=deque(),
        waiting_since_s=since_s,
        deadline_s=deadline_s,
        listener=SimpleNamespace(held_s=None),
        request=SimpleNamespace(lead_ms=lead_ms),
        feed=SimpleNamespace(wants_reading=False, is_incremental=False, is_bistream=False),
        num_vain_bites=0,
        num_started_clauses=0,
        stalls_at_s=lambda *_: stalls_s,
        is_at_rest=False,
        voice=SimpleNamespace(flow_prompt=SimpleNamespace(rendered="some blocks")),
    )
