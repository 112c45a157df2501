"""Who is looked at, against a plain model of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.loop.watchlist import WatchList
from voicegate.engine.policy.scheduler import StreamView

pytestmark = pytest.mark.unit


def test_an_alarm_touches_its_key_once_and_in_time() -> None:
    watched = WatchList()
    watched.set_alarm(1, 5.0)
    watched.set_alarm(2, 3.0)
    assert watched.next_alarm_s == 3.0
    assert watched.ring(2.9) == []
    assert watched.ring(5.0) == [2, 1]
    assert watched.touched == {1, 2}
    assert (watched.ring(9.0), watched.next_alarm_s) == ([], None)


def test_the_earliest_alarm_of_a_key_stands() -> None:
    watched = WatchList()
    watched.set_alarm(1, 5.0)
    watched.set_alarm(1, 2.0)
    watched.set_alarm(1, 7.0)
    assert watched.ring(2.0) == [1]
    assert watched.next_alarm_s is None


def test_a_forgotten_key_never_rings() -> None:
    watched = WatchList()
    watched.touched.add(1)
    watched.set_alarm(1, 5.0)
    watched.forget(1)
    assert (watched.ring(9.0), watched.touched, watched.next_alarm_s) == ([], set(), None)


def view(key: int, *, deadline_s: float | None = None) -> StreamView:
    return StreamView(key, 0.0, deadline_s, max_lead_s=3.0, wants_llm=True)


def test_only_what_was_touched_is_looked_at_and_the_rest_is_remembered() -> None:
    watched = WatchList()
    watched.touched |= {1, 2}
    seen: list[int] = []

    def view_of(key: int) -> StreamView:
        seen.append(key)
        return view(key)

    assert {each.key for each in watched.look(0.0, view_of)} == {1, 2}
    watched.touched.add(2)
    assert {each.key for each in watched.look(0.0, view_of)} == {1, 2}
    assert sorted(seen) == [1, 2, 2]
    watched.touched.add(1)
    assert {each.key for each in watched.look(0.0, lambda _: None)} == {2}, "1 has nothing to do any more"
    watched.forget(2)
    assert not watched.look(0.0, view_of)


def test_what_is_due_later_comes_back_by_its_alarm() -> None:
    watched = WatchList()
    watched.touched.add(1)
    assert not watched.look(5.0, lambda key: view(key, deadline_s=10.0))
    assert watched.next_alarm_s == 7.0
    assert watched.ring(7.0) == [1]
    assert [each.key for each in watched.look(7.0, lambda key: view(key, deadline_s=10.0))] == [1]


@given(st.lists(st.tuples(st.sampled_from(["alarm", "ring", "forget"]), st.integers(0, 4), st.integers(0, 20))))
def test_it_behaves_as_a_table_of_alarms(calls: list[tuple[str, int, int]]) -> None:
    watched = WatchList()
    table: dict[int, float] = {}
    for call, key, moment in calls:
        match call:
            case "alarm":
                watched.set_alarm(key, moment)
                table[key] = min(moment, table.get(key, moment))
            case "ring":
                due = {due_key for due_key, due_s in table.items() if due_s <= moment}
                assert set(watched.ring(moment)) == due
                table = {other: due_s for other, due_s in table.items() if other not in due}
            case "forget":
                watched.forget(key)
                table.pop(key, None)
        assert watched.next_alarm_s == min(table.values(), default=None)
