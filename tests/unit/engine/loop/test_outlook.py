"""What an utterance could have done for it: how far ahead, and when that gives way to memory."""

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.config import EngineConfig
from voicegate.engine.loop.clause import Clause, ClauseState
from voicegate.engine.loop.outlook import Outlook

pytestmark = pytest.mark.unit

CONFIG = EngineConfig(TINY_MODEL_DIR, lead_ms=3000, max_lead_ms=9000, llm_ahead_tokens=100).resolved("cpu")


class Models:
    """Stands for the pipeline: every clause can go on."""

    def block_frames(self, clause: Clause) -> int:
        return 50

    def num_blocks(self, clause: Clause) -> int:
        return 1

    def can_generate(self, clause: Clause) -> bool:
        return True


def outlook() -> Outlook:
    models: Any = Models()
    return Outlook(CONFIG, models)


def utterance(*clauses: Clause, lead_ms: int | None = None, deadline_s: float | None = 20.0) -> Any:
    return SimpleNamespace(
        clauses=deque(clauses),
        deadline_s=deadline_s,
        stamps=SimpleNamespace(first_text_s=1.0),
        request=SimpleNamespace(lead_ms=lead_ms),
    )


def clause(state: ClauseState = ClauseState.GENERATING, *, num_tokens: int = 0) -> Clause:
    return Clause(0, 0, "x", [1], is_text_complete=True, state=state, num_tokens=num_tokens)


@pytest.mark.parametrize(("lead_ms", "expected_s"), [(None, 3.0), (500, 0.5), (60_000, 9.0)])
def test_a_request_may_name_its_lead_within_bounds(lead_ms: int | None, expected_s: float) -> None:
    view = outlook().view(1, utterance(clause(), lead_ms=lead_ms))
    assert view is not None
    assert view.max_lead_s == expected_s


def test_while_room_is_short_what_is_begun_is_finished_unless_the_request_named_its_lead() -> None:
    short = outlook()
    short.is_room_short = True
    views = [short.view(1, utterance(clause(), lead_ms=lead_ms)) for lead_ms in (None, 500)]
    assert [view.max_lead_s for view in views if view is not None] == [math.inf, 0.5]
    assert short.starts_at_s(utterance(clause(ClauseState.WAITING))) == 17.0, "the next one is held back all the same"


def test_the_llm_stays_within_its_distance_of_the_flow() -> None:
    assert outlook().generating(utterance(clause(num_tokens=99))) is not None
    assert outlook().generating(utterance(clause(num_tokens=100))) is None
    behind = utterance(clause(ClauseState.RENDERING, num_tokens=60), clause(num_tokens=50))
    assert outlook().generating(behind) is None


def test_the_next_clause_starts_when_the_one_before_has_all_its_tokens() -> None:
    waiting = clause(ClauseState.WAITING)
    assert outlook().startable(utterance(clause(), waiting)) is None
    assert outlook().startable(utterance(clause(ClauseState.RENDERING), waiting)) is waiting
    assert outlook().startable(utterance(clause(ClauseState.RENDERING, num_tokens=100), waiting)) is None


def test_a_view_tells_the_frames_of_the_block_that_is_ready() -> None:
    view = outlook().view(1, utterance(clause(num_tokens=50)))
    assert view is not None
    assert (view.block_frames, view.has_block) == (50, True)


def test_what_has_no_clause_has_no_view() -> None:
    assert outlook().view(1, utterance()) is None
