"""A peer for whom bytes wait: how long it may take none of them, to the tick."""

from voicegate.gateway.session.stall import StallWatch

LIMIT_S = 10.0


def watch_until_stalled(watch: StallWatch, taken_at: dict[float, int] | None = None) -> float:
    """Look whenever it is due; `taken_at`: what the peer has taken from each time on. Returns when it was found."""
    taken_at = taken_at or {}
    while True:
        now_s = watch.next_look_s
        if watch.look(now_s, max((count for at_s, count in taken_at.items() if at_s <= now_s), default=0)):
            return now_s
        assert watch.next_look_s > now_s


def test_ten_seconds_are_ten_seconds() -> None:
    watch = StallWatch(LIMIT_S)
    watch.begin(100.0, 0)
    assert watch_until_stalled(watch) == 110.0


def test_they_count_from_the_last_byte_taken() -> None:
    watch = StallWatch(LIMIT_S)
    watch.begin(100.0, 0)
    found_s = watch_until_stalled(watch, {103.2: 1, 109.9: 2})
    assert 119.9 - LIMIT_S / 20 <= found_s <= 119.9


def test_a_byte_now_and_then_is_enough() -> None:
    watch = StallWatch(LIMIT_S)
    watch.begin(100.0, 0)
    assert watch_until_stalled(watch, {100.0 + 9.0 * n: n for n in range(100)}) > 991.0


def test_what_was_taken_before_does_not_count() -> None:
    watch = StallWatch(LIMIT_S)
    watch.begin(100.0, 5_000)
    assert not watch.look(109.0, 5_000)
    assert watch.look(110.0, 5_000)


def test_it_begins_anew() -> None:
    watch = StallWatch(LIMIT_S)
    watch.begin(100.0, 0)
    assert not watch.look(109.0, 0)
    watch.begin(200.0, 0)
    assert not watch.look(201.0, 0)
    assert watch_until_stalled(watch) == 210.0


def test_a_late_look_finds_it_too() -> None:
    watch = StallWatch(LIMIT_S)
    watch.begin(100.0, 0)
    assert watch.look(500.0, 0)
