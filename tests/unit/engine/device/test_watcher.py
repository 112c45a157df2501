"""Waking of a thread that sleeps while a GPU works, on lanes that a test moves on. Threads, and no clock."""

import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

import pytest
from structlog.testing import capture_logs

from tests.support.patience import PATIENCE_S
from voicegate.engine.device import watcher as watcher_module
from voicegate.engine.device.lanes import Mark
from voicegate.engine.device.watcher import Watcher


class HeldMark:
    """Reached when a test says so; who waits for it may be told later."""

    def __init__(self, lane: object = "lane") -> None:
        self.lane = lane
        self.num_waits = 0
        self.is_waited_for = threading.Event()
        self.error: RuntimeError | None = None
        self.query_error: RuntimeError | None = None
        self._is_reached = False
        self._is_told = threading.Event()

    @property
    def is_reached(self) -> bool:
        if self.query_error is not None:
            raise self.query_error
        return self._is_reached

    def seconds_since(self, _: Mark) -> float:
        return 0.0

    def wait(self) -> None:
        self.num_waits += 1
        self.is_waited_for.set()
        assert self._is_told.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error

    def reach(self) -> None:
        self._is_reached = True
        self._is_told.set()

    def reach_untold(self) -> None:
        self._is_reached = True

    def fail(self) -> None:
        self.error = RuntimeError("made to fail")
        self._is_told.set()


class AskedMark(HeldMark):
    """Something happens while it is asked for the next time."""

    on_query: Callable[[], None] | None = None

    @property
    def is_reached(self) -> bool:
        on_query, self.on_query = self.on_query, None
        if on_query is not None:
            on_query()
        return super().is_reached


class Sleeper:
    """The engine's thread: the test's own."""

    def __init__(self) -> None:
        self._bell: SimpleQueue[None] = SimpleQueue()
        self.watcher = Watcher(lambda: self._bell.put(None))

    @property
    def was_rung(self) -> bool:
        return not self._bell.empty()

    def watch(self, *marks: HeldMark) -> None:
        for mark in marks:
            self.watcher.watch(mark)

    def until_rung(self) -> None:
        self._bell.put(self._bell.get(timeout=PATIENCE_S))

    def sleep(self) -> None:
        """Until it is woken; raises Empty where it never is."""
        self._bell.get(timeout=PATIENCE_S)
        self.watcher.disarm()


@contextmanager
def sleeper(*left: HeldMark) -> Iterator[Sleeper]:
    """`left`: not reached at the end by itself."""
    made = Sleeper()
    try:
        yield made
    finally:
        for mark in left:
            mark.reach()
        made.watcher.close()


def watchers() -> set[threading.Thread]:
    """Watchers that there are now, others' too."""
    return {thread for thread in threading.enumerate() if thread.name == "gpu-watcher"}


def marks_of(lane: object, number: int) -> list[HeldMark]:
    return [HeldMark(lane) for _ in range(number)]


def test_while_nobody_sleeps_nothing_is_waited_for_nor_kept() -> None:
    with sleeper() as busy:
        waits: list[int] = []
        kept: list[weakref.ref[HeldMark]] = []
        for lane in ("llm", "token2wav"):
            in_flight: deque[HeldMark] = deque()
            for mark in marks_of(lane, 100):
                busy.watch(mark)
                kept.append(weakref.ref(mark))
                in_flight.append(mark)
                if len(in_flight) > 2:
                    done = in_flight.popleft()
                    done.reach()
                    waits.append(done.num_waits)
            for mark in in_flight:
                mark.reach()
            del mark, done, in_flight
        assert sum(waits) == 0
        assert sum(mark() is not None for mark in kept) <= 2 * 3
        assert not busy.was_rung
    assert not busy.was_rung


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_first_mark_of_any_lane_wakes(first: int) -> None:
    marks = [HeldMark(lane) for lane in range(3)]
    with sleeper(*marks) as asleep:
        asleep.watch(*marks)
        assert asleep.watcher.arm()
        for mark in marks:
            assert mark.is_waited_for.wait(PATIENCE_S)
        assert not asleep.was_rung
        marks[first].reach()
        asleep.sleep()


def test_one_reached_between_looking_and_sleeping_lets_nobody_sleep() -> None:
    reached, other = HeldMark("llm"), HeldMark("token2wav")
    with sleeper(other) as asleep:
        asleep.watch(other, reached)
        reached.reach()
        assert not asleep.watcher.arm()
        assert other.num_waits == 0
        assert asleep.watcher.arm()  # it has looked
        assert other.is_waited_for.wait(PATIENCE_S)
    assert reached.num_waits == 0


def test_one_reached_between_looking_and_arming_wakes_and_is_not_waited_for_again() -> None:
    reached, other = HeldMark("first looked at"), AskedMark("looked at next")
    with sleeper(other) as asleep:
        asleep.watch(reached, other)
        assert asleep.watcher.arm()
        assert reached.is_waited_for.wait(PATIENCE_S)
        asleep.watcher.wake()  # a command
        asleep.sleep()

        def reach() -> None:
            reached.reach()
            asleep.until_rung()

        other.on_query = reach
        assert asleep.watcher.arm()
        asleep.sleep()
    assert reached.num_waits == 1


def test_of_a_lane_one_is_waited_for_at_a_time_and_the_next_in_the_next_sleep() -> None:
    first, second = marks_of("lane", 2)
    with sleeper() as asleep:
        asleep.watch(first, second)
        assert asleep.watcher.arm()
        first.reach()
        asleep.sleep()
        assert second.num_waits == 0
        assert not asleep.watcher.arm()  # whoever is woken looks, but nobody knows
        assert asleep.watcher.arm()
        assert second.is_waited_for.wait(PATIENCE_S)
        second.reach()
        asleep.sleep()
    assert (first.num_waits, second.num_waits) == (1, 1)


def test_none_is_waited_for_twice_however_often_it_is_slept() -> None:
    mark, last = marks_of("lane", 2)
    with sleeper() as asleep:
        asleep.watch(mark)
        for _ in range(50):
            assert asleep.watcher.arm()
            asleep.watcher.wake()  # a command
            asleep.sleep()
        mark.reach()
        asleep.watch(last)
        last.reach()
    assert mark.num_waits == 1


def test_who_is_awake_is_not_woken_and_looks_before_sleeping() -> None:
    mark = HeldMark()
    with sleeper() as awake:
        awake.watch(mark)
        assert awake.watcher.arm()
        awake.watcher.wake()
        awake.sleep()
        assert mark.is_waited_for.wait(PATIENCE_S)
        mark.reach()
        awake.watcher.close()  # its thread has ended
        assert not awake.was_rung
        assert not awake.watcher.arm()


def test_a_thread_that_comes_late_is_given_no_other_mark_and_wakes_when_it_comes() -> None:
    """The mark was seen to be reached before its watcher ran."""
    late, following = marks_of("lane", 2)
    with sleeper(late, following) as asleep:
        asleep.watch(late)
        assert asleep.watcher.arm()
        asleep.watcher.wake()
        asleep.sleep()
        assert late.is_waited_for.wait(PATIENCE_S)
        late.reach_untold()
        asleep.watch(following)
        assert asleep.watcher.arm()
        late.reach()
        asleep.sleep()
        assert following.num_waits == 0
        assert asleep.watcher.arm()
        assert following.is_waited_for.wait(PATIENCE_S)
        following.reach()
        asleep.sleep()


def test_a_device_that_fails_wakes_once_and_its_next_mark_is_waited_for() -> None:
    failing, following = marks_of("lane", 2)
    with sleeper() as asleep, capture_logs() as logs:
        asleep.watch(failing, following)
        assert asleep.watcher.arm()
        failing.fail()
        asleep.sleep()
        assert [log["event"] for log in logs] == ["watching_failed"]
        assert not failing.is_reached
        assert not asleep.watcher.arm()
        assert asleep.watcher.arm()
        assert following.is_waited_for.wait(PATIENCE_S)
        following.reach()
        asleep.sleep()
    assert failing.num_waits == 1


def test_a_device_that_cannot_be_asked_lets_nobody_sleep() -> None:
    """A thread that looks meets that error, where it can be dealt with."""
    first, second, other = HeldMark("failing"), HeldMark("failing"), HeldMark("sound")
    with sleeper(other) as asleep:
        asleep.watch(first, other)
        for mark in (first, second):
            mark.query_error = RuntimeError("made to fail")
        assert not asleep.watcher.arm()
        asleep.watch(second)
        assert asleep.watcher.arm()
        assert other.is_waited_for.wait(PATIENCE_S)
    assert first.num_waits == second.num_waits == 0


def test_the_end_waits_for_what_was_launched_last() -> None:
    first, last = marks_of("lane", 2)
    made = Sleeper()
    made.watch(first, last)
    closing = threading.Thread(target=made.watcher.close)
    closing.start()
    assert last.is_waited_for.wait(PATIENCE_S)
    first.reach()
    last.reach()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert first.num_waits == 0


@pytest.mark.parametrize("is_armed", [False, True])
def test_the_end_leaves_a_thread_whose_device_hangs(is_armed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_CLOSING_S", 0.01)
    hanging, sound = HeldMark("hangs"), HeldMark("sound")
    made, others = Sleeper(), watchers()
    made.watch(hanging, sound)
    if is_armed:
        assert made.watcher.arm()
    sound.reach()
    threads = watchers() - others
    assert threads
    with capture_logs() as logs:
        made.watcher.close()
    assert logs[-1]["event"] == "watchers_left"
    hanging.reach()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_on_a_cpu_there_is_no_thread() -> None:
    mark, others = HeldMark(), watchers()
    mark.reach()
    with sleeper() as asleep:
        asleep.watch(mark)
        assert asleep.watcher.arm()
        assert watchers() <= others


class Device:
    """Lanes that get on in a thread of their own, each in its order."""

    def __init__(self, num_lanes: int, seed: int) -> None:
        self.lanes: list[deque[HeldMark]] = [deque() for _ in range(num_lanes)]
        self.work: SimpleQueue[int | None] = SimpleQueue()  # a lane with one more mark
        self._rng = random.Random(seed)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Device":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.work.put(None)
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while (lane := self.work.get()) is not None:
            for _ in range(self._rng.randrange(200)):  # so that marks come before, while and after it falls asleep
                pass
            self.lanes[lane].popleft().reach()


@pytest.mark.parametrize("seed", range(3))
def test_no_mark_is_lost_whenever_it_comes(seed: int) -> None:
    """Two in flight on each lane, as the engine has them: it would sleep for ever if one were."""
    num_lanes, num_rounds = 3, 300
    waits: list[int] = []
    in_flight: list[deque[HeldMark]] = [deque() for _ in range(num_lanes)]
    num_launched = [0] * num_lanes
    with sleeper() as engine, Device(num_lanes, seed) as device:
        while any(in_flight) or min(num_launched) < num_rounds:
            is_idle = True
            for lane in range(num_lanes):
                while in_flight[lane] and in_flight[lane][0].is_reached:
                    waits.append(in_flight[lane].popleft().num_waits)
                if len(in_flight[lane]) < 2 and num_launched[lane] < num_rounds:
                    mark = HeldMark(lane)
                    in_flight[lane].append(mark)
                    device.lanes[lane].append(mark)
                    device.work.put(lane)
                    engine.watch(mark)
                    num_launched[lane] += 1
                    is_idle = False
            if is_idle and any(in_flight) and engine.watcher.arm():
                try:
                    engine.sleep()
                except Empty:
                    pytest.fail("a mark was lost")
    assert len(waits) == num_lanes * num_rounds
    assert max(waits) == 1
