"""Utterances and models as a Roster sees them, without text, sound or arithmetic."""

import math
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, TypeVarTuple

from voicegate.engine.core.clause import Clause
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import UtteranceId

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


def trusting(_: Utterance, work: Callable[[*_Args], _Result], *args: *_Args) -> _Result | None:
    """An Attempt where nothing goes wrong."""
    return work(*args)


class StubModels:
    """Stands for the pipeline: every active clause can go on."""

    def block_frames(self, clause: Clause) -> int:
        return 50 if clause.rendering is not None else 0

    def num_blocks(self, clause: Clause) -> int:
        return 1 if clause.rendering is not None else 0

    def num_missing_tokens(self, clause: Clause) -> int:
        return 0

    free_share = 1.0

    def can_generate(self, clause: Clause) -> bool:
        return clause.rendering is not None


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
        may_gather=False,
        feed=SimpleNamespace(wants_reading=False, is_incremental=False, is_bistream=False),
        num_vain_bites=0,
        num_started_clauses=0,
        stalls_at_s=lambda *_: stalls_s,
        is_at_rest=False,
        voice=SimpleNamespace(flow_prompt=SimpleNamespace(rendered="some blocks")),
    )
