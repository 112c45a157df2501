"""Alarms beside a plain table of moments."""

import math

from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.core.roster import Alarms


@given(st.lists(st.tuples(st.sampled_from(["set", "ring"]), st.integers(0, 4), st.integers(0, 20) | st.just(math.inf))))
def test_alarms_behave_as_a_table(calls: list[tuple[str, int, float]]) -> None:
    alarms = Alarms()
    table: dict[int, float] = {}
    for call, key, moment_s in calls:
        match call:
            case "set":
                alarms.set(key, moment_s)
                table[key] = moment_s
            case "ring":
                due = {due_key for due_key, due_s in table.items() if due_s <= moment_s < math.inf}
                assert set(alarms.ring(moment_s if moment_s < math.inf else -1.0)) == due
                table = {other: due_s for other, due_s in table.items() if other not in due}
        assert alarms.next_s == min((due_s for due_s in table.values() if due_s < math.inf), default=None)
