"""Models are compiled at the same time, each in its lane's thread; then captured in turn, in the thread that waits."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue

import pytest
import torch

from tests.support.patience import PATIENCE_S
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.device.lanes import HOST_LANE, HostLane
from voicegate.engine.load import startup
from voicegate.engine.load.progress import Lines
from voicegate.engine.load.startup import ModelStart

CPU = torch.device("cpu")


class ThreadLane(HostLane):
    """Knows whose thread it is active in, as CUDA's current stream is a thread's own."""

    def __init__(self) -> None:
        self.user: int | None = None

    def active(self) -> AbstractContextManager[object]:
        return self._used()

    @contextmanager
    def _used(self) -> Iterator[None]:
        assert self.user is None, "two threads on one lane"
        self.user = threading.get_ident()
        try:
            yield
        finally:
            self.user = None


class FakeModel:
    def __init__(
        self, name: str, events: list[tuple[str, int]], lane: ThreadLane, work: Callable[[], object] = lambda: None
    ) -> None:
        self._name = name
        self._events = events
        self._lane = lane
        self._work = work

    num_buckets = 2
    num_graphs = 3
    num_launches = 0

    def compile(self, advance: Callable[[], None]) -> None:
        assert self._lane.user == threading.get_ident()
        assert torch.is_inference_mode_enabled()
        advance()
        self._work()
        advance()
        self._events.append((f"compile {self._name}", threading.get_ident()))

    def capture(self) -> None:
        assert self._lane.user == threading.get_ident()
        self._events.append((f"capture {self._name}", threading.get_ident()))


class Reports:
    """Implements Progress; all is told from the thread that made this."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.lines: list[str] = []
        self.shares: list[tuple[int, int]] = []

    def line(self, text: str) -> None:
        assert threading.get_ident() == self._thread
        self.lines.append(text)

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        assert threading.get_ident() == self._thread
        assert part == "compiling kernels"
        assert not self.lines
        self.shares.append((num_done, num_steps))


def test_all_compile_at_the_same_time_and_are_captured_in_turn() -> None:
    events: list[tuple[str, int]] = []
    reports = Reports()
    start = ModelStart(CPU, reports)
    meeting = threading.Barrier(3, timeout=PATIENCE_S)
    for name in ("LLM", "vocoder", "flow"):
        lane = ThreadLane()
        start.add(name, FakeModel(name, events, lane, meeting.wait), lane)
    assert not events
    start.finish()
    compiled, captured = events[:3], events[3:]
    assert {name for name, _ in compiled} == {"compile LLM", "compile vocoder", "compile flow"}
    threads = {thread for _, thread in compiled}
    assert len(threads) == 3
    assert threading.get_ident() not in threads
    here = threading.get_ident()
    assert captured == [("capture LLM", here), ("capture vocoder", here), ("capture flow", here)]
    assert all("kernels compiled in" in line for line in reports.lines[:3])
    assert reports.lines[3].startswith("kernels compiled: ")
    told = [line.partition(" in ")[0] for line in reports.lines[4:7]]
    assert told == ["LLM: 3 CUDA graphs", "vocoder: 3 CUDA graphs", "flow: 3 CUDA graphs"]
    assert reports.lines[7].startswith("graphs captured: ")
    assert reports.shares == [(num_done, 6) for num_done in range(1, 7)]


def test_the_first_error_is_raised_when_the_others_are_done() -> None:
    events: list[tuple[str, int]] = []
    reports = Reports()
    first, second = RuntimeError("out of memory"), ValueError("and then this")
    failing: SimpleQueue[threading.Thread] = SimpleQueue()

    def fail() -> None:
        for _ in range(2):
            failing.put(threading.current_thread())
        raise first

    def has_failed() -> None:
        failing.get(timeout=PATIENCE_S).join(PATIENCE_S)

    def fail_later() -> None:
        has_failed()
        raise second

    def work_on() -> None:
        has_failed()
        threading.Event().wait(0.2)

    start = ModelStart(CPU, reports)
    for name, work in (("LLM", fail_later), ("vocoder", fail), ("flow", work_on)):
        lane = ThreadLane()
        start.add(name, FakeModel(name, events, lane, work), lane)
    with pytest.raises(RuntimeError) as raised:
        start.finish()
    assert raised.value is first
    assert [name for name, _ in events] == ["compile flow"]  # awaited, and nothing is captured
    assert not [thread for thread in threading.enumerate() if thread.name == "compiler"]
    assert len(reports.lines) == 1
    assert reports.shares == [(num_done, 6) for num_done in range(1, 5)], "two models broke off"


def test_nothing_to_compile_is_no_line() -> None:
    reports = Reports()
    start = ModelStart(CPU, reports)
    start.add("LLM", NOTHING_TO_CAPTURE, HOST_LANE)
    start.finish()
    assert not reports.lines


def test_a_gpus_threads_know_it_and_find_triton_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(startup, "_set_up_once", lambda device: calls.append(f"set up {device}"))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: calls.append(f"use {device}"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append(f"wait for {device}"))

    class Model:
        num_buckets = num_graphs = num_launches = 1

        def compile(self, advance: Callable[[], None]) -> None:
            calls.append("compile")

        def capture(self) -> None:
            calls.append("capture")

    start = ModelStart(torch.device("cuda", 1), Lines(lambda _: None))
    start.add("LLM", Model(), HOST_LANE)
    start.finish()
    assert calls == ["set up cuda:1", "use cuda:1", "compile", "wait for cuda:1", "capture"]
