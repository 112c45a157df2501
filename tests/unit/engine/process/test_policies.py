"""Where new requests go, when a process hangs, and when the next one is started: all pure."""

from dataclasses import dataclass, field, replace

from voicegate.engine.child_process import Backoff
from voicegate.engine.placement import Load, choose
from voicegate.engine.process.keeper import _LOOK_S, _Hangs
from voicegate.engine.process.wire import State

FREE = Load(room=100, num_placed=0, max_live=100, num_blocks_free=500.0, max_blocks=500.0)


def chosen(*loads: Load) -> int | None:
    return choose(enumerate(loads))


def test_who_has_no_room_is_not_asked() -> None:
    assert chosen() is None
    assert chosen(replace(FREE, room=0)) is None
    assert chosen(replace(FREE, room=0), replace(FREE, num_placed=99, room=1)) == 1


def test_the_one_with_fewer_takes_it_and_equals_take_turns() -> None:
    assert chosen(FREE, FREE) == 0
    assert chosen(replace(FREE, num_placed=1), FREE) == 1
    assert chosen(replace(FREE, num_placed=1), replace(FREE, num_placed=1)) == 0


def test_a_queue_and_full_memory_count_against_it() -> None:
    few = replace(FREE, num_placed=10)
    assert chosen(replace(few, num_waiting=5), replace(few, num_placed=12)) == 1
    assert chosen(replace(few, num_blocks_free=300.0), replace(few, num_placed=12)) == 1


def test_a_larger_gpu_takes_more() -> None:
    loads = [FREE, replace(FREE, max_live=300, num_blocks_free=1500.0, max_blocks=1500.0, room=300)]
    for _ in range(200):
        place = chosen(*loads)
        assert place is not None
        loads[place] = replace(loads[place], num_placed=loads[place].num_placed + 1, room=loads[place].room - 1)
    assert [load.num_placed for load in loads] == [50, 150]


def test_those_who_come_in_one_moment_do_not_all_go_where_there_was_a_little_less() -> None:
    """Memory and queue are known as they were before the first of them."""
    loads = [replace(FREE, num_waiting=3, num_blocks_free=400.0), FREE]
    for _ in range(100):
        place = chosen(*loads)
        assert place is not None
        loads[place] = replace(loads[place], num_placed=loads[place].num_placed + 1)
    assert min(load.num_placed for load in loads) >= 35


def test_an_engine_that_tells_nothing_of_its_memory_is_known_by_its_places() -> None:
    fake = Load(room=5, num_placed=1, max_live=10)
    assert chosen(fake, replace(fake, num_placed=0)) == 1


# --- hangs ------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """A process as a Replica has it."""

    num_states: int = 0
    state: State = field(default_factory=State)


def troubles(told: Told, num_looks: int) -> list[str | None]:
    hangs = _Hangs(3.0)
    return [hangs.look(told, look * _LOOK_S) for look in range(1, num_looks + 1)]  # type: ignore[arg-type]


def test_who_works_and_who_has_nothing_to_do_may_go_on_for_ever() -> None:
    hangs = _Hangs(3.0)
    for look, pulse in enumerate([*range(100), *[None] * 100]):
        assert hangs.look(Told(look, State(pulse)), look * _LOOK_S) is None  # type: ignore[arg-type]


def test_one_that_tells_nothing_is_found_out_after_its_time() -> None:
    told = troubles(Told(), 20)
    first = told.index("it does not answer")
    assert set(told[:first]) == {None}
    assert 3.0 <= first * _LOOK_S <= 3.0 + 2 * _LOOK_S, "what it told may be as old as the look before the first"


def test_one_that_gets_nothing_done_is_found_out() -> None:
    hangs = _Hangs(3.0)
    told = [hangs.look(Told(look, State(7)), look * _LOOK_S) for look in range(1, 20)]  # type: ignore[arg-type]
    assert 3.0 <= told.index("it gets nothing done") * _LOOK_S <= 3.0 + 2 * _LOOK_S


# --- the next one -----------------------------------------------------------------------------------------


def test_who_dies_young_again_and_again_is_followed_later_and_later() -> None:
    backoff = Backoff()
    assert [backoff.delay_s(5.0) for _ in range(9)] == [0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_long_life_is_followed_by_another_at_once() -> None:
    backoff = Backoff()
    assert [backoff.delay_s(life_s) for life_s in (5, 5, 59, 60, 5, 1000, 0, 0)] == [0, 1, 2, 0, 1, 0, 1, 2]
