"""Encoder processes that do not read, do not answer, or answer what nobody can take: the others go on."""

import os
import signal
import threading
import time

import pytest
from structlog.testing import capture_logs

from tests.support.encoders import EXPECTED, OPUS, PATIENCE_S, SOUND, Speech, children, spoken, until_whole
from voicegate.engine import units
from voicegate.engine.audio import encoder_child, encoder_pool
from voicegate.engine.audio.encoder_child import EncoderChild
from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.encoding import LocalEncoders
from voicegate.engine.interface import Done, Failed


def test_a_stopped_process_holds_up_neither_its_caller_nor_the_end(
    one: EncoderProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_pool, "_CLOSE_TIMEOUT_S", 0.05)
    (child,) = children(one)
    os.kill(child.pid, signal.SIGSTOP)
    speech = Speech(one)
    for _ in range(100):  # 8 MB, a pipe holds 64 KiB
        speech.outlet.send_audio(SOUND)
    one.close()
    assert isinstance(speech.end(), Failed)
    assert child._has_ended.is_set()
    assert not one._io._thread.is_alive()


def test_a_process_that_answers_nothing_for_long_is_killed_and_replaced(two: EncoderProcesses) -> None:
    stopped, other = Speech(two), Speech(two)
    child = children(two)[0]
    os.kill(child.pid, signal.SIGSTOP)
    with capture_logs() as logs:
        stopped.outlet.send_audio(SOUND)
        start_s = time.monotonic()
        for num_looks in range(round(encoder_child._PATIENCE_S) + 1):
            child.look(start_s + num_looks)
        assert isinstance(stopped.end(), Failed)
        until_whole(two, num_lost=1)
    assert "encoder_process_hangs" in [entry["event"] for entry in logs]
    other.say()
    assert isinstance(other.finish(), Done)
    assert other.packets == EXPECTED


def test_a_process_that_is_asked_nothing_may_be_silent_for_ever(one: EncoderProcesses) -> None:
    speech = Speech(one)
    start = units.SAMPLES_PER_FRAME
    speech.say(slice(0, start))
    start_s = time.monotonic()
    for num_looks in range(100):
        children(one)[0].look(start_s + num_looks)
    speech.outlet.send_audio(SOUND[start:])
    assert isinstance(speech.finish(), Done)
    assert speech.packets == EXPECTED


def test_a_process_that_does_not_read_holds_up_no_other(two: EncoderProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_child, "_PATIENCE_S", 10**6)  # however long the other takes on a busy machine
    num_times = 25
    stopped = Speech(two)
    child = children(two)[0]
    os.kill(child.pid, signal.SIGSTOP)
    for _ in range(num_times):  # 2 MB, a pipe holds a quarter of it
        stopped.outlet.send_audio(SOUND)
    for _ in range(3):  # in the other, which has fewer
        assert spoken(two) == EXPECTED
    assert not stopped.events
    os.kill(child.pid, signal.SIGCONT)
    done = stopped.finish()
    assert isinstance(done, Done)
    here = Speech(LocalEncoders())
    for _ in range(num_times):
        here.outlet.send_audio(SOUND)
    assert here.finish() == done
    assert stopped.packets == here.packets


def test_what_is_answered_in_one_go_is_answered_in_order(one: EncoderProcesses) -> None:
    (child,) = children(one)
    encodings = [one.open(OPUS) for _ in range(5)]
    answered: list[tuple[int, int]] = []
    is_all = threading.Event()
    os.kill(child.pid, signal.SIGSTOP)
    asked = [(index, units.SAMPLES_PER_FRAME * number) for number in range(1, 11) for index in range(5)]
    for index, num_samples in asked:
        encodings[index].encode(
            SOUND[:num_samples], lambda encoded, index=index: answered.append((index, encoded.num_samples))
        )
    encodings[0].flush(lambda _: is_all.set())
    os.kill(child.pid, signal.SIGCONT)
    assert is_all.wait(PATIENCE_S)
    assert answered == asked


def test_an_answer_that_cannot_be_taken_costs_its_process_and_no_other(two: EncoderProcesses) -> None:
    def refuse(_: object) -> None:
        raise ValueError("not this one")

    with capture_logs() as logs:
        bad, good = two.open(OPUS), Speech(two)
        failures: list[str] = []
        bad.on_failure(failures.append)
        child = children(two)[0]
        bad.encode(SOUND, refuse)
        assert child._has_ended.wait(PATIENCE_S)
        until_whole(two, num_lost=1)
    assert len(failures) == 1
    assert "encoder_answer_failed" in [entry["event"] for entry in logs]
    good.say()
    assert isinstance(good.finish(), Done)
    assert good.packets == EXPECTED


def test_a_process_that_closes_its_output_and_goes_on_holds_up_no_other_and_is_killed(
    one: EncoderProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[bool] = []
    monkeypatch.setattr(encoder_child, "_MODULE", "tests.support.mute_process")
    monkeypatch.setattr(encoder_child, "_EXIT_S", 10**6)
    is_lost = threading.Event()
    with capture_logs() as logs:
        mute = EncoderChild(one._io, lambda child: is_lost.set() if child.is_lost else changed.append(child.is_ready))
        assert is_lost.wait(PATIENCE_S)
        assert changed == [True]
        assert spoken(one) == EXPECTED
        assert not mute._has_ended.is_set()
        os.kill(mute.pid, signal.SIGKILL)
        assert mute._has_ended.wait(PATIENCE_S)
        monkeypatch.setattr(encoder_child, "_EXIT_S", 0.0)
        mute = EncoderChild(one._io, lambda _: None)
        assert mute._has_ended.wait(PATIENCE_S)
    assert [entry["exit_status"] for entry in logs if entry["event"] == "encoder_process_lost"] == 2 * [-signal.SIGKILL]
