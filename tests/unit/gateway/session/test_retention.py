"""Sessions that are waited for, and those that make way where too much is kept."""

from hypothesis import given
from hypothesis import strategies as st

from voicegate.gateway.session.retention import Absences, Retention


def test_everybody_may_be_away_for_equally_long() -> None:
    absences: Absences[str] = Absences(30.0)
    assert absences.next_end_s is None
    absences.begin("a", 100.0)
    absences.begin("b", 110.0)
    assert (absences.all, absences.next_end_s) == (["a", "b"], 130.0)
    assert absences.find_over(129.9) == []
    assert absences.find_over(130.0) == ["a"]
    absences.end("a")
    absences.end("a")  # nothing happens twice
    assert ("a" in absences, absences.next_end_s) == (False, 140.0)
    assert absences.find_over(200.0) == ["b"]


def test_who_was_back_is_waited_for_anew() -> None:
    absences: Absences[str] = Absences(30.0)
    absences.begin("a", 100.0)
    absences.begin("b", 101.0)
    absences.end("a")
    absences.begin("a", 120.0)
    assert (absences.all, absences.next_end_s) == (["b", "a"], 131.0)


def test_who_keeps_most_makes_way() -> None:
    retention: Retention[str] = Retention(100)
    assert retention.note("small", 10) is None
    assert retention.note("large", 80) is None
    assert retention.note("small", 20) is None
    assert retention.note("small", 21) == "large"
    assert retention.num_kept_bytes == 21
    retention.forget("small")
    retention.forget("nobody")
    assert retention.num_kept_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100)), max_size=100))
def test_no_more_is_kept_than_may_be(notes: list[tuple[int, int]]) -> None:
    retention: Retention[int] = Retention(150)
    kept: dict[int, int] = {}
    for who, num_bytes in notes:
        kept[who] = num_bytes
        largest = retention.note(who, num_bytes)
        if largest is not None:
            assert kept[largest] == max(kept.values())
            del kept[largest]
        assert retention.num_kept_bytes == sum(kept.values()) <= 150
