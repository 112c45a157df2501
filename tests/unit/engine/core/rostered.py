"""Utterances and models as a Roster sees them, without text, sound or arithmetic."""

import math
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.guard import Guard
from voicegate.engine.core.look import Look, Waiting
from voicegate.engine.core.policy import Limits, StreamView
from voicegate.engine.core.reprefills import Reprefills
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import UtteranceId


def with_a_block() -> Any:
    """Stands for the rendering of a clause whose next block is ready."""
    flow = SimpleNamespace(is_ready=True, next_num_frames=50, next_num_blocks=1, num_missing_tokens=0)
    return SimpleNamespace(flow=flow)


class StubModels:
    """Stands for the pipeline: every active clause can go on."""

    def can_generate(self, clause: Clause) -> bool:
        return clause.rendering is not None


class Looked:
    """A roster that is asked behind a look at all who have changed, as the core asks it."""

    def __init__(self, config: EngineConfig, limits: Limits, models: Any) -> None:
        self.models = models
        self.guarding = partial(Guard, self._fail_all_of)
        look = Look(config, models, Reprefills(config, lookahead_tokens=3, held_back_frames=4))
        self.changed = set[int]()
        self.roster = Roster(look, limits, self.guarding, self.changed)

    def _fail_all_of(self, _: Sequence[Utterance], error: Exception) -> None:
        raise AssertionError from error

    def due(self, now_s: float) -> list[StreamView]:
        self.roster.look(now_s)
        self.roster.note_load()
        self.roster.look(now_s)
        return sorted(view for _, view in self.roster.due.values())  # by key: those looked at come in any order

    def waiting(self, now_s: float, *, only_pressing: bool) -> list[Waiting]:
        self.roster.look(now_s)
        return [each for each in self.roster.waiting.values() if each.is_pressing or not only_pressing]

    def stalled(self, now_s: float) -> list[Utterance]:
        self.roster.look(now_s)
        return list(self.roster.stalled.values())

    def next_alarm_s(self, now_s: float) -> float | None:
        self.roster.look(now_s)
        return self.roster.next_alarm_s(now_s)

    def note_room(self, now_s: float) -> None:
        self.roster.look(now_s)
        self.roster.note_room()


_KEYS = count()


def stub_utterance(
    *,
    since_s: float = 1.0,
    deadline_s: float | None = None,
    lead_ms: int | None = None,
    stalls_s: float = math.inf,
) -> Any:
    key = next(_KEYS)
    return SimpleNamespace(
        key=key,
        utterance_id=UtteranceId(str(key)),
        clauses=deque(),
        waiting_since_s=since_s,
        deadline_s=deadline_s,
        listener=SimpleNamespace(held_s=None),
        request=SimpleNamespace(is_background=False, lead_ms=lead_ms),
        feed=SimpleNamespace(wants_reading=False, is_incremental=False, is_bistream=False),
        num_vain_bites=0,
        has_begun=False,
        stalls_at_s=lambda *_: stalls_s,
        is_at_rest=False,
        voice=SimpleNamespace(flow_prompt=SimpleNamespace(rendered="some blocks")),
    )
