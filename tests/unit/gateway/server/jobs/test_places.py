"""How many parts may run beside live streams, by what the engine tells of its places."""

import pytest

from voicegate.gateway.server.jobs.places import Places, Share, places_of


def gauges(num_all: int, num_active: int, num_waiting: int = 0) -> dict[str, float]:
    return {"max_active_clauses": num_all, "active_clauses": num_active, "waiting_clauses": num_waiting}


def test_places_are_clauses_and_not_places_of_those_who_wait() -> None:
    assert places_of(112, 1024, gauges(80, 0)) == Places(num_free=80, num_all=80, num_full=11)
    assert places_of(25, 64, gauges(8, 8, 7)) == Places(num_free=-7, num_all=8, num_full=1)


def test_an_engine_that_tells_no_clauses_has_a_place_for_each_utterance() -> None:
    assert places_of(3, 4, {}) == Places(num_free=3, num_all=4, num_full=4)


def test_few_utterances_at_once_may_be_fewer_than_clauses() -> None:
    assert places_of(2, 2, gauges(8, 0)) == Places(num_free=2, num_all=2, num_full=1)


@pytest.mark.parametrize(
    ("num_taken", "num_parts", "num_streams", "expected"),
    [
        (0, 0, 0, 64),  # alone they fill an H200
        (78, 64, 0, 64),
        (6, 0, 20, 40),  # beside 20 live streams
        (56, 40, 20, 40),
        (100, 4, 300, 4),  # beside 300: a few go on
    ],
)
def test_parts_alone_fill_a_device_and_make_way_for_live_streams(
    num_taken: int, num_parts: int, num_streams: int, expected: int
) -> None:
    places, share = Places(448 - num_taken, 448, 64), Share()
    share.look(places, num_parts, num_streams)
    assert share.most(places) == expected


def test_parts_come_back_slowly_and_are_stopped_only_where_there_are_many_too_many() -> None:
    share, idle, busy = Share(), Places(448, 448, 64), Places(438, 448, 64)
    share.look(busy, 0, 10)
    share.look(idle, 0, 0)
    assert share.most(idle) < 30
    for _ in range(300):
        share.look(idle, 0, 0)
    assert share.most(idle) > 60
    share.look(busy, 0, 10)
    assert [share.num_excess(busy, num_parts) for num_parts in (24, 48, 50)] == [0, 0, 2]


def test_one_part_goes_on_wherever_there_is_a_place() -> None:
    places, share = Places(3, 8, 1), Share()
    share.look(places, 0, 5)
    assert share.most(places) == 1


def test_parts_make_no_way_for_each_other() -> None:
    """Several may hold two clauses at once; and a process tells of parts that have ended."""
    share = Share()
    for num_taken in (18, 22, 14):
        share.look(Places(80 - num_taken, 80, 11), 11, 0)
    assert share.most(Places(66, 80, 11)) == 11
    share.look(Places(66, 80, 11), 2, 1)
    assert share.most(Places(66, 80, 11)) == 3, "one stream's"
