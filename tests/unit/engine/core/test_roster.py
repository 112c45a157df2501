"""The roster's needs: asked of changed utterances alone, and never otherwise than if all were asked."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.golden import TINY_MODEL_DIR
from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import HandDrivenEngine
from tests.unit.engine.core.rostered import Looked, StubModels, stub_utterance, with_a_block
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.core.look import Look, Needs
from voicegate.engine.core.policy import PRESSING, Limits
from voicegate.engine.flow.chunking import BatchSize
from voicegate.engine.interface import SpeakingMode, UtteranceId

CONFIG = EngineConfig(TINY_MODEL_DIR, lead_ms=3000, max_lead_ms=9000, llm_ahead_tokens=100).resolved("cpu")
LIMITS = Limits(BatchSize(4, 200), room_guard_s=1.0)


class Watched(Looked):
    def __init__(self, limits: Limits = LIMITS) -> None:
        super().__init__(CONFIG, limits, StubModels())

    def joined(self, *states: ClauseState, num_tokens: int = 0, **options: Any) -> Any:
        utterance = stub_utterance(**options)
        for state in states:
            clause = Clause(utterance.key, 0, "x", [1], is_text_complete=True, state=state)
            if state is not ClauseState.WAITING:
                clause.rendering = with_a_block()
            clause.tokens = [1] * num_tokens
            utterance.clauses.append(clause)
        self.roster.add(utterance)
        return utterance


GENERATING, RENDERING, WAITING = ClauseState.GENERATING, ClauseState.RENDERING, ClauseState.WAITING


# --- one utterance --------------------------------------------------------------------------------------------


def test_who_does_not_play_and_has_its_lead_needs_nothing_and_less_is_made_up_for() -> None:
    roster = Watched()
    paused = roster.joined(GENERATING, RENDERING, deadline_s=math.inf)
    paused.listener.held_s = 3.0
    assert list(roster.due(10.0)) == []
    assert roster.next_alarm_s(10.0) is None
    paused.listener.held_s = 2.9
    roster.changed.add(paused.key)
    (view,) = roster.due(10.0)
    assert view.key == paused.key


def test_what_has_nothing_to_say_does_not_keep_the_llm_from_what_follows() -> None:
    roster = Watched()
    utterance = roster.joined(RENDERING, WAITING, WAITING, deadline_s=2.0)
    utterance.clauses[1].text_ids = []
    (waiting,) = roster.waiting(1.0, only_pressing=False)
    assert waiting.clause is utterance.clauses[2]


@pytest.mark.parametrize(("lead_ms", "expected_s"), [(None, 3.0), (500, 0.5), (60_000, 9.0)])
def test_a_request_may_name_its_lead_within_bounds(lead_ms: int | None, expected_s: float) -> None:
    roster = Watched()
    roster.joined(GENERATING, deadline_s=10.0, lead_ms=lead_ms)
    (view,) = roster.due(10.0)
    assert view.max_lead_s == expected_s


def test_while_room_is_short_what_is_begun_is_finished_unless_the_request_named_its_lead() -> None:
    roster = Watched()
    roster.joined(GENERATING, deadline_s=10.0)
    roster.joined(GENERATING, deadline_s=10.0, lead_ms=500)
    roster.joined(WAITING)
    assert [view.max_lead_s for view in roster.due(10.0)] == [3.0, 0.5]
    roster.note_room(10.0)
    assert [view.max_lead_s for view in roster.due(10.0)] == [math.inf, 0.5]
    held_back = roster.joined(RENDERING, WAITING, deadline_s=20.0)
    assert held_back not in [each.utterance for each in roster.waiting(10.0, only_pressing=False)], "a next one is not"


def test_the_llm_stays_within_its_distance_of_the_flow() -> None:
    roster = Watched()
    near = roster.joined(GENERATING, num_tokens=99)
    roster.joined(GENERATING, num_tokens=100)
    roster.joined(RENDERING, GENERATING, num_tokens=60)
    assert [view.key for view in roster.due(0.0) if view.wants_llm] == [near.key]


def test_the_next_clause_waits_for_room_when_the_one_before_has_all_its_tokens() -> None:
    roster = Watched()
    roster.joined(GENERATING, WAITING)
    ready = roster.joined(RENDERING, WAITING)
    roster.joined(RENDERING, WAITING, num_tokens=100)
    assert [each.utterance for each in roster.waiting(0.0, only_pressing=False)] == [ready]
    assert [each.clause for each in roster.waiting(0.0, only_pressing=False)] == [ready.clauses[1]]


def test_a_view_tells_the_frames_of_the_block_that_is_ready() -> None:
    roster = Watched()
    roster.joined(RENDERING)
    roster.joined()
    assert [(view.block_frames, view.wants_llm) for view in roster.due(0.0)] == [(50, False)]


# --- reports and alarms ---------------------------------------------------------------------------------------


def test_only_who_has_changed_is_looked_at_and_the_rest_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    roster, looked_at = Watched(), []
    at = Look.at

    def watched(look: Look, utterance: Any, *given: Any, **options: Any) -> Needs:
        looked_at.append(utterance)
        return at(look, utterance, *given, **options)

    monkeypatch.setattr(Look, "at", watched)
    first, second = roster.joined(GENERATING), roster.joined(GENERATING)
    assert len(roster.due(0.0)) == 2
    assert {each.key for each in looked_at} == {first.key, second.key}  # those who changed together, in any order
    second.clauses[0].tokens += [1] * 1000
    roster.changed.add(second.key)
    assert {view.key: view.wants_llm for view in roster.due(0.0)} == {first.key: True, second.key: False}
    assert [each.key for each in looked_at[2:]] == [second.key]
    roster.roster.remove(first)
    assert [view.key for view in roster.due(0.0)] == [second.key]


def test_tokens_are_news_when_they_complete_a_block_or_nothing_was_known_of_them() -> None:
    roster = Watched()
    clause = roster.joined(GENERATING).clauses[0]

    def is_news() -> bool:
        clause.rendering.flow.num_missing_tokens = max(7 - len(clause.tokens), 0)
        roster.due(0.0)
        clause.tokens.append(1)  # in place, as the pipeline does
        if is_news := len(clause.tokens) >= roster.roster.needs[clause.key].news_tokens:
            roster.changed.add(clause.key)
        return is_news

    assert is_news(), "its prompt was not read, as far as anybody knew"
    clause.is_prefilled = True
    roster.changed.add(clause.key)
    assert [is_news() for _ in range(8)] == [False, False, False, False, False, True, False, False]
    clause.tokens.extend([1] * (CONFIG.llm_ahead_tokens - 10))
    assert is_news(), "it is far enough ahead"


def test_text_that_comes_is_read_before_anybody_is_looked_at() -> None:
    roster = Watched()
    utterance = roster.joined()
    utterance.feed.wants_reading = utterance.feed.lacks_clause = True
    roster.roster.note_text(utterance)
    assert roster.roster.next_readers(0.0, is_lacking=True) == [utterance]
    assert utterance.key in roster.changed, "not looked at yet"
    utterance.feed.wants_reading = False
    roster.roster.note_text(utterance)
    assert roster.roster.next_readers(0.0, is_lacking=True) == []
    roster.roster.remove(utterance)
    utterance.feed.wants_reading = True
    roster.roster.note_text(utterance)
    assert not roster.roster.readers, "who has ended reads nothing"


def test_what_is_due_later_comes_back_by_its_alarm() -> None:
    roster = Watched()
    roster.joined(GENERATING, deadline_s=10.0)
    stalling = roster.joined(stalls_s=6.0)
    assert not roster.due(5.0)
    assert roster.next_alarm_s(5.0) == 6.0
    assert roster.stalled(6.0) == [stalling]
    roster.roster.remove(stalling)
    assert roster.next_alarm_s(6.0) == 7.0
    assert len(roster.due(7.0)) == 1


def test_a_listener_presses_sooner_where_many_have_work() -> None:
    roster = Watched(replace(LIMITS, guard_s=0.15, light_guard_s=0.05))
    roster.joined(GENERATING, deadline_s=10.1)

    def is_pressing() -> bool:
        roster.due(10.0)
        return any(rank[0] == PRESSING for rank, view in roster.roster.due.values() if view.deadline_s is not None)

    assert not is_pressing()
    others = [roster.joined(GENERATING) for _ in range(15)]
    assert not is_pressing()
    assert [roster.roster.are_many(num_more=number) for number in (0, 1)] == [False, True]
    others.append(roster.joined(GENERATING))
    assert is_pressing()
    assert roster.roster.are_many()
    for _ in range(8):
        roster.roster.remove(others.pop())
    assert is_pressing(), "a load that comes and goes by a few is the same load"
    roster.roster.remove(others.pop())
    assert not is_pressing()
    assert not roster.roster.are_many()
    assert roster.next_alarm_s(10.0) == pytest.approx(10.05), "and presses by the light guard"


def test_many_who_are_gone_are_not_taken_along() -> None:
    roster = Watched(replace(LIMITS, guard_s=0.15, light_guard_s=0.05))
    many = [roster.joined(GENERATING) for _ in range(17)]
    roster.due(10.0)
    roster.joined(WAITING)
    roster.waiting(10.0, only_pressing=False)
    assert roster.roster.are_many()
    for each in many[:9]:
        roster.roster.remove(each)
    assert not roster.roster.are_many()


# --- the whole loop -------------------------------------------------------------------------------------------


def answers(engine: HandDrivenEngine) -> tuple[Any, ...]:
    roster, now_s = engine.core._roster, engine.now_s
    roster.look(now_s)
    roster.note_load()
    roster.look(now_s)
    return (
        dict(roster.due),
        dict(roster.waiting),
        dict(roster.again),
        dict(roster.stalled),
        dict(roster.resting),
        roster.next_readers(now_s, is_lacking=True),
        roster.next_readers(now_s, is_lacking=False),
        roster.next_alarm_s(now_s),
    )


TEXTS = ["Good morning. ", "How are you, ", "1,234 ", "...", "Hello", "And so it goes on and on. " * 3, ""]
commands = st.one_of(
    st.tuples(st.just("open"), st.booleans(), st.none()),
    st.tuples(st.just("push"), st.integers(0, 9), st.sampled_from(TEXTS)),
    st.tuples(st.sampled_from(["flush", "end", "cancel"]), st.integers(0, 9), st.none()),
    st.tuples(st.just("pass"), st.sampled_from([0.01, 0.4, 3.0]), st.integers(1, 80)),
)


@settings(max_examples=60)
@example([("open", False, None), ("push", 0, TEXTS[5]), ("end", 0, None), ("pass", 0.01, 200)], 2, 40)
@example([("open", True, None), ("push", 0, TEXTS[5]), ("pass", 0.01, 100), ("push", 0, TEXTS[0])] * 3, 2, 5)
@given(st.lists(commands, max_size=25), st.integers(1, 4), st.integers(2, 40))
def test_nothing_that_changes_goes_unnoticed(script: list[Any], num_slots: int, num_blocks: int) -> None:
    """Whatever happens: asking everybody anew gives what was known."""
    config = replace(CONFIG, max_active_clauses=num_slots, stall_ms=350)
    engine = HandDrivenEngine(config, hollow(num_slots=num_slots, num_blocks=num_blocks).stages)
    names: list[UtteranceId] = []
    for number, (command, which, what) in enumerate(script):
        if command == "open":
            mode = SpeakingMode.BISTREAM if which else SpeakingMode.CLAUSE
            names.append(engine.submit(str(number), mode=mode, seed=number))
        elif command == "pass":
            for _ in range(what):
                engine.core.step()
                engine.now_s += which
                known = answers(engine)
                engine.core._roster.changed.update(engine.core._roster.utterances)
                assert answers(engine) == known
        elif names:
            name = names[which % len(names)]
            match command:
                case "push":
                    engine.core.push_text(name, what)
                case "flush":
                    engine.core.flush_text(name, str(number))
                case "end":
                    engine.core.end_text(name)
                case "cancel":
                    engine.core.cancel(name, None)
