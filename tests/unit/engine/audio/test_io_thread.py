"""One thread for many descriptors: nothing that is put is left lying, and what comes together wakes it once."""

import gc
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from structlog.testing import capture_logs

from tests.support.patience import PATIENCE_S
from voicegate.engine.audio.io_thread import IoThread


@pytest.fixture
def io() -> Iterator[IoThread]:
    thread = IoThread("io")
    yield thread
    thread.close()


def until_done(io: IoThread) -> None:
    """All that was put before."""
    is_done = threading.Event()
    io.call(is_done.set)
    assert is_done.wait(PATIENCE_S)


def test_puts_of_two_threads_are_all_done_and_each_ones_in_order(io: IoThread) -> None:
    done: list[tuple[int, int]] = []

    def put(name: int) -> None:
        for number in range(20_000):
            io.call(partial(done.append, (name, number)))

    threads = [threading.Thread(target=put, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until_done(io)
    for name in range(2):
        assert [number for who, number in done if who == name] == list(range(20_000))


def test_no_put_is_left_without_a_wake(io: IoThread) -> None:
    """Each waits for what it has put before it puts more: the thread falls asleep between them, again and again."""
    left = threading.Semaphore(0)

    def put() -> None:
        for _ in range(2_000):
            is_done = threading.Event()
            io.call(is_done.set)
            if not is_done.wait(PATIENCE_S):
                return
        left.release()

    for _ in range(2):
        threading.Thread(target=put, daemon=True).start()
    assert left.acquire(timeout=PATIENCE_S)
    assert left.acquire(timeout=PATIENCE_S)


class Work(deque[Callable[[], None]]):
    """Work of which more is put at the very moment at which it was found empty."""

    more: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        is_some = len(self) > 0
        if not is_some and self.more is not None:
            more, self.more = self.more, None
            more()
        return is_some


def test_what_is_put_behind_the_last_look_wakes_it_anew(io: IoThread) -> None:
    io._work = work = Work()
    is_done = threading.Event()
    work.more = partial(io.call, is_done.set)
    io.call(lambda: None)
    assert is_done.wait(PATIENCE_S)


class Rope:
    """Counts who pulls."""

    def __init__(self, io: IoThread) -> None:
        self.num_pulls = 0
        self._rope = io._rope
        io._rope = self  # type: ignore[assignment]

    def send(self, data: bytes) -> int:
        self.num_pulls += 1
        return self._rope.send(data)

    def close(self) -> None:
        self._rope.close()


def test_what_is_put_while_the_thread_is_awake_wakes_it_once(io: IoThread) -> None:
    rope = Rope(io)
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        assert may_go.wait(PATIENCE_S)

    io.call(hold)
    assert is_held.wait(PATIENCE_S)
    done: list[int] = []
    for number in range(1000):
        io.call(partial(done.append, number))
    may_go.set()
    until_done(io)
    assert done == list(range(1000))
    assert rope.num_pulls <= 3  # of hold, of the thousand, and of what waits for them


def test_descriptors_are_read_as_they_are_ready_until_they_are_unwatched(io: IoThread) -> None:
    pipes = [os.pipe() for _ in range(3)]
    heard: list[tuple[int, bytes]] = []
    has_heard = threading.Semaphore(0)

    def hear(index: int) -> None:
        heard.append((index, os.read(pipes[index][0], 100)))
        has_heard.release()

    for index, (source, _) in enumerate(pipes):
        io.call(partial(io.watch, source, selectors.EVENT_READ, partial(hear, index)))
    for index in (2, 0, 1):
        os.write(pipes[index][1], b"%d" % index)
        assert has_heard.acquire(timeout=PATIENCE_S)
    assert heard == [(2, b"2"), (0, b"0"), (1, b"1")]
    for _ in range(2):
        io.call(partial(io.unwatch, pipes[0][0]))
    until_done(io)
    os.write(pipes[0][1], b"more")
    os.write(pipes[1][1], b"more")
    assert has_heard.acquire(timeout=PATIENCE_S)
    until_done(io)
    assert heard[3:] == [(1, b"more")]
    io.close()
    for source, target in pipes:
        os.close(source)
        os.close(target)


def test_what_cannot_be_waited_for_is_looked_at_until_it_is_so(io: IoThread) -> None:
    num_looks = 0
    is_so = threading.Event()

    def look() -> bool:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 3:
            is_so.set()
        return num_looks == 3

    io.call(partial(io.look_until, look))
    assert is_so.wait(PATIENCE_S)
    until_done(io)
    until_done(io)
    assert num_looks == 3


def test_ones_trouble_is_logged_and_is_not_the_others(io: IoThread) -> None:
    with capture_logs() as logs:
        io.call(partial(int, "no number"))
        until_done(io)
    assert [entry["event"] for entry in logs] == ["io_failed"]


def test_closing_does_what_was_put_and_leaves_nothing_open() -> None:
    gc.collect()  # of the files that tests before this one have left
    num_threads, num_files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    io = IoThread("io")
    done: list[int] = []
    for number in range(100):
        io.call(partial(done.append, number))
    io.close()
    io.close()
    io.call(partial(done.append, 100))
    assert done == list(range(100))
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (num_threads, num_files)
