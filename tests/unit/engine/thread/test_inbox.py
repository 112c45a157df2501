"""Commands on their way: each utterance's in its order, cancels before all, and never more of them than envelopes."""

import threading
from collections import defaultdict
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.patience import PATIENCE_S
from voicegate.engine.core.core import EngineCore
from voicegate.engine.interface import ListenerReport, UtteranceId
from voicegate.engine.thread.inbox import Inbox


class Recorder:
    """A core that notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        self.calls.append((utterance_id, "push", text))

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        self.calls.append((utterance_id, report))

    def note(self, *call: object) -> Any:
        return lambda core: core.calls.append(call)


A, B = UtteranceId("a"), UtteranceId("b")


def taken(inbox: Inbox, recorder: Recorder) -> list[tuple[Any, ...]]:
    """Everything that is there, applied; what each envelope did, in order."""
    while commands := inbox.take(0.0):
        for command in commands:
            command(cast(EngineCore, recorder))
    calls, recorder.calls = recorder.calls, []
    return calls


def test_text_in_many_pieces_is_one_command() -> None:
    inbox, recorder = Inbox(), Recorder()
    for character in "hello":
        inbox.push(A, character)
        inbox.push(B, character.upper())
    inbox.add(A, recorder.note(A, "flush"))
    inbox.push(A, "x")
    assert taken(inbox, recorder) == [(A, "push", "hello"), (A, "flush"), (A, "push", "x"), (B, "push", "HELLO")]


def test_of_reports_that_wait_only_the_last_counts() -> None:
    inbox, recorder = Inbox(), Recorder()
    for played_ms in range(1000):
        inbox.note(A, ListenerReport(played_ms))
    inbox.push(A, "x")
    inbox.note(A, ListenerReport(is_playing=False))
    expected = [(A, ListenerReport(999)), (A, "push", "x"), (A, ListenerReport(is_playing=False))]
    assert taken(inbox, recorder) == expected


def test_what_comes_while_an_envelope_is_applied_is_in_the_next() -> None:
    inbox, recorder = Inbox(), Recorder()
    inbox.push(A, "one")
    (push,) = inbox.take(0.0)
    inbox.push(A, "two")
    push(cast(EngineCore, recorder))
    assert taken(inbox, recorder) == [(A, "push", "one"), (A, "push", "two")]


def test_a_cancel_overtakes_all_but_the_text_before_it() -> None:
    inbox, recorder = Inbox(), Recorder()
    inbox.push(A, "a")
    inbox.put(recorder.note("voice"))
    inbox.push(B, "b")
    assert inbox.cancel(B, recorder.note(B, "cancel")) is None
    assert taken(inbox, recorder) == [(B, "push", "b"), (B, "cancel"), (A, "push", "a"), ("voice",)]


def test_who_has_not_been_heard_of_is_taken_back_with_its_text() -> None:
    inbox, recorder = Inbox(), Recorder()
    inbox.open(A, recorder.note(A, "open"))
    inbox.push(A, "one ")
    inbox.add(A, recorder.note(A, "flush"))
    inbox.push(A, "two")
    assert inbox.cancel(A, recorder.note(A, "cancel")) == "one two"
    assert taken(inbox, recorder) == []
    inbox.open(A, recorder.note(A, "open"))
    assert taken(inbox, recorder) == [(A, "open")], "its name is free again"
    assert inbox.cancel(A, recorder.note(A, "cancel")) is None


def test_what_waits_for_an_utterance_that_has_ended_is_not_taken_back_with_the_next_of_its_name() -> None:
    """The engine's thread has heard of the first, and may have to be told to stop: its encoder failed, say."""
    inbox, recorder = Inbox(), Recorder()
    inbox.open(A, recorder.note(A, "open"))
    assert taken(inbox, recorder) == [(A, "open")]
    inbox.push(A, "old")
    assert inbox.cancel(A, recorder.note(A, "cancel")) is None
    inbox.open(A, recorder.note(A, "open"))
    inbox.push(A, "new")
    assert inbox.cancel(A, recorder.note(A, "cancel")) == "new"
    assert taken(inbox, recorder) == [(A, "push", "old"), (A, "cancel")]


def test_the_next_of_a_name_is_told_of_behind_all_that_waits_for_the_last() -> None:
    inbox, recorder = Inbox(), Recorder()
    inbox.push(A, "old")
    inbox.open(A, recorder.note(A, "open"))
    inbox.push(A, "new")
    assert taken(inbox, recorder) == [(A, "push", "old"), (A, "open"), (A, "push", "new")]
    assert inbox.cancel(A, recorder.note(A, "cancel")) is None


@pytest.mark.parametrize("event", ["wake", "close", "push"])
def test_whoever_waits_is_woken(event: str) -> None:
    inbox = Inbox()
    results: list[Any] = []
    waiter = threading.Thread(target=lambda: results.append(inbox.take(None)))
    waiter.start()
    {"wake": inbox.wake, "close": inbox.close, "push": lambda: inbox.push(A, "x")}[event]()
    waiter.join(PATIENCE_S)
    assert len(results) == 1
    assert bool(results[0]) == (event == "push")
    assert inbox.is_closed == (event == "close")


ACTIONS = ["open", "push", "add", "cancel", "take", "end"]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3)), max_size=60))
@example([("push", 0), ("open", 0), ("cancel", 0), ("cancel", 0)])
@example([("push", 0), ("cancel", 0), ("open", 0), ("cancel", 0), ("push", 0)])
def test_every_utterance_is_told_what_was_said_in_that_order(script: list[tuple[str, int]]) -> None:
    inbox, recorder = Inbox(), Recorder()
    said: dict[UtteranceId, list[str]] = defaultdict(list)
    heard: dict[UtteranceId, list[str]] = defaultdict(list)
    opened: dict[UtteranceId, int] = {}  # and how much was said before it

    def listen(calls: list[tuple[Any, ...]]) -> None:
        for name, _, *what in calls:
            heard[name] += list(what[0])

    for number, (action, which) in enumerate(script):
        name, mark = UtteranceId(str(which)), chr(0x100 + number)
        match action:
            case "open" if name not in opened:
                opened[name] = len(said[name])
                inbox.open(name, recorder.note(name, "open", mark))
                said[name].append(mark)
            case "push":
                inbox.push(name, mark)
                said[name].append(mark)
            case "add":
                inbox.add(name, recorder.note(name, "add", mark))
                said[name].append(mark)
            case "cancel":
                if inbox.cancel(name, recorder.note(name, "cancel", mark)) is None:
                    said[name].append(mark)
                else:
                    del said[name][opened.pop(name) :]
            case "end" if name in opened and len(heard[name]) > opened[name]:  # by itself: its name is free
                del opened[name]
            case "take":
                for command in inbox.take(0.0):
                    command(cast(EngineCore, recorder))
                listen(recorder.calls)
                recorder.calls = []
    listen(taken(inbox, recorder))
    assert {name: marks for name, marks in heard.items() if marks} == {n: marks for n, marks in said.items() if marks}
