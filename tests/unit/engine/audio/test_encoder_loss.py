"""Encoder processes that are killed, or outlive nobody: who fails, who goes on, and what takes their place."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.encoders import EXPECTED, NAME, OPUS, PATIENCE_S, SOUND, Speech, children, kill, spoken, until_whole
from tests.support.own_session import running
from voicegate.engine import child_process
from voicegate.engine.audio import encoder_child, encoder_pool
from voicegate.engine.audio.encoder_child import EncoderChild
from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.encoder_wire import Operation, Status, read_frame, write_frame
from voicegate.engine.audio.io_thread import IoThread
from voicegate.engine.interface import Done, EngineError, Failed, Flushed


@pytest.fixture(autouse=True)
def a_replacement_is_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy process is still no silent one."""
    monkeypatch.setattr(child_process, "_MAX_DELAY_S", 0.0)
    monkeypatch.setattr(encoder_child, "_PATIENCE_S", 10**6)
    monkeypatch.setattr(encoder_child, "_START_PATIENCE_S", 10**6)


class Starts:
    """Starts of replacements, which wait until they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_allowed = threading.Event()
        monkeypatch.setattr(encoder_pool, "EncoderChild", self._start)

    def _start(self, io: IoThread, on_change: Callable[[EncoderChild], None]) -> EncoderChild:
        assert self.are_allowed.wait(PATIENCE_S)
        return EncoderChild(io, on_change)


# --- killed -----------------------------------------------------------------------------------------------


def test_one_of_two_is_killed_and_the_other_takes_what_comes(
    two: EncoderProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch)
    first, second = Speech(two), Speech(two)
    first.say(slice(0, 5000))
    second.say(slice(0, 5000))
    with capture_logs() as logs:
        kill(children(two)[0])
    failed = first.end()
    assert isinstance(failed, Failed)
    assert "encoded" in failed.message
    for _ in range(5):
        assert spoken(two) == EXPECTED, "a dead process attracts nobody"
    second.outlet.send_audio(SOUND[5000:])
    assert isinstance(second.finish(), Done)
    assert second.packets == EXPECTED
    assert two.unready_reason is None
    (told,) = [entry for entry in logs if entry["event"] == "encoder_process_lost"]
    assert (told["pid"], told["exit_status"], told["num_utterances"]) == (children(two)[0].pid, -signal.SIGKILL, 1)
    starts.are_allowed.set()
    until_whole(two, num_lost=1)
    assert [spoken(two) for _ in range(4)] == 4 * [EXPECTED]


def test_all_are_killed_and_nobody_is_let_in_until_there_are_others(
    two: EncoderProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch)
    for child in children(two):
        kill(child)
    assert two.unready_reason is not None
    assert "encoder" in two.unready_reason
    late = Speech(two)  # was let in just before
    assert isinstance(late.end(), Failed)
    late.outlet.send_audio(SOUND)
    late.outlet.flush()
    late.outlet.send(Flushed(NAME, "f", 0))
    assert isinstance(late.finish(), Failed)
    assert len(late.events) == 1
    starts.are_allowed.set()
    until_whole(two, num_lost=2)
    assert two.unready_reason is None
    assert spoken(two) == EXPECTED


def test_an_utterance_that_says_nothing_just_now_fails_at_once(one: EncoderProcesses) -> None:
    silent, pausing, ended = Speech(one), Speech(one), Speech(one)
    pausing.say(slice(0, 5000))
    ended.say()
    assert isinstance(ended.finish(), Done)
    kill(*children(one))
    assert [type(speech.end()) for speech in (silent, pausing)] == [Failed, Failed]
    assert isinstance(ended.events[-1], Done)


def test_what_is_being_encoded_fails_with_its_process(one: EncoderProcesses) -> None:
    speech = Speech(one)
    os.kill(children(one)[0].pid, signal.SIGSTOP)
    for _ in range(20):
        speech.outlet.send_audio(SOUND)
    speech.outlet.finish(lambda delivered: Done(NAME, delivered.num_samples, delivered.num_packets, 0))
    kill(*children(one))
    assert [type(event) for event in speech.events] == [Failed]


def test_a_process_killed_between_utterances_is_replaced_as_often_as_it_happens(one: EncoderProcesses) -> None:
    gc.collect()  # of the files that tests before this one have left
    num_threads = threading.active_count()
    num_files = len(os.listdir("/proc/self/fd"))
    for num_lost in (1, 2, 3):
        assert spoken(one) == EXPECTED
        kill(*children(one))
        until_whole(one, num_lost=num_lost)
    assert spoken(one) == EXPECTED
    assert threading.active_count() == num_threads
    assert len(os.listdir("/proc/self/fd")) == num_files


def test_a_process_that_cannot_be_started_is_tried_again(
    one: EncoderProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_tries = 0

    def start(io: IoThread, on_change: Callable[[EncoderChild], None]) -> EncoderChild:
        nonlocal num_tries
        num_tries += 1
        if num_tries < 3:
            raise OSError("no file descriptors left")
        return EncoderChild(io, on_change)

    monkeypatch.setattr(encoder_pool, "EncoderChild", start)
    with capture_logs() as logs:
        kill(*children(one))
        until_whole(one, num_lost=1)
    assert [entry["reason"] for entry in logs if entry["event"] == "encoder_process_not_started"] == [
        "no file descriptors left",
        "no file descriptors left",
    ]
    assert spoken(one) == EXPECTED


def test_a_start_whose_processes_die_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_child, "_MODULE", "voicegate.engine.audio.no_such_module")
    with pytest.raises(EngineError, match="encoder process did not start"):
        EncoderProcesses(2)


# --- signals, and the end of the engine -------------------------------------------------------------------

ENGINE = """
import signal, sys, threading
import numpy as np
from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.interface import AudioFormat

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *_: None)  # to ignore them would be inherited
pool = EncoderProcesses(2)
encodings = [pool.open(AudioFormat()) for _ in range(2)]
answered = threading.Semaphore(0)
num_packets = []

def answer(encoded):
    num_packets.append(len(encoded.packets))
    answered.release()

for line in sys.stdin:
    for encoding in encodings:
        encoding.on_failure(lambda reason: print(reason, flush=True))
        encoding.encode(np.zeros(48_000, np.float32), answer)
    for _ in encodings:
        answered.acquire()
    print(sum(num_packets), pool.counters["encoders_lost"], flush=True)
pool.close()
"""


@pytest.fixture
def engine() -> Iterator["subprocess.Popen[str]"]:
    """A process like the engine's, in a group of its own, that encodes 4 s for each line of its input."""
    with running(ENGINE) as process:
        yield process


def ask(process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    print("encode", file=process.stdin, flush=True)
    return process.stdout.readline()


def test_signals_to_the_whole_group_leave_the_encoders_to_the_engine(engine: "subprocess.Popen[str]") -> None:
    assert ask(engine) == "200 0\n"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.killpg(engine.pid, number)
    assert ask(engine) == "400 0\n"
    _, errors = engine.communicate(timeout=PATIENCE_S)
    assert (engine.returncode, errors) == (0, "")


def test_no_process_outlives_an_engine_that_is_killed(engine: "subprocess.Popen[str]") -> None:
    assert ask(engine) == "200 0\n"
    engine.kill()
    _, errors = engine.communicate(timeout=PATIENCE_S)  # until all who hold its standard error have ended
    assert errors == ""


def test_a_process_whose_engine_is_gone_before_it_could_answer_ends_without_a_word() -> None:
    pipe = subprocess.PIPE
    module = [sys.executable, "-m", encoder_child._MODULE]
    with subprocess.Popen(module, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert read_frame(process.stdout) == (Status.READY, 0, 0, b"")
        process.stdout.close()
        write_frame(process.stdin, Operation.OPEN, 0, 0, msgspec.json.encode(OPUS))
        write_frame(process.stdin, Operation.ENCODE, 0, 0, SOUND.tobytes())
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 1
