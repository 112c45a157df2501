"""Encoders in processes of their own. 400 streams are 20,000 packets a second.

libopus runs without Python's lock, but a thread has to get it back after each packet, from an engine's thread that
holds it for milliseconds: on an H200's 16 cores four encoder threads fell a second behind at 300 streams while
the samples were there after 65 ms (docs/adr/0011). A process needs the lock of nobody.
"""

import os
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import msgspec
import structlog

from voicegate.engine.audio.encoder_wire import Opening, Operation, Status, read_frame, unpack_packets, write_frame
from voicegate.engine.audio.encoding import Answer, Encoded
from voicegate.engine.audio.packets import Samples, pre_skip_48k
from voicegate.engine.interface import AudioFormat, EngineError

log = structlog.get_logger()

_MODULE = "voicegate.engine.audio.encoder_process"
_LOST = "its encoder process has ended"

_Frame = tuple[Operation, int, int, bytes]


class _Process:
    """One encoder process with its writer and its reader. Frames of an utterance are answered in order."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        root = str(Path(__file__).parents[3])  # importable also where the package is not installed
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        self._child = subprocess.Popen(
            [sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.num_open = 0
        self._frames: SimpleQueue[_Frame | None] = SimpleQueue()
        self._lock = threading.Lock()  # over the answers
        self._answers: dict[int, deque[Answer]] = {}
        self._is_lost = False
        self._threads = [
            threading.Thread(target=self._write, name="encoder-writer", daemon=True),
            threading.Thread(target=self._read, name="encoder-reader", daemon=True),
        ]

    def wait_until_ready(self) -> None:
        """Raises EngineError if it did not start."""
        first = read_frame(self._stdout)
        if first is None or first[0] != Status.READY:
            raise EngineError(f"an encoder process did not start (python -m {_MODULE}); see its output above")
        for thread in self._threads:
            thread.start()

    @property
    def _stdout(self) -> BinaryIO:
        assert self._child.stdout is not None
        return self._child.stdout  # type: ignore[return-value]

    def open(self, number: int, opening: Opening) -> None:
        with self._lock:
            self.num_open += 1
            self._answers[number] = deque()
        self._frames.put((Operation.OPEN, number, 0, msgspec.json.encode(opening)))

    def ask(self, operation: Operation, number: int, body: bytes, answer: Answer) -> None:
        with self._lock:
            is_lost = self._is_lost
            if not is_lost and number in self._answers:
                self._answers[number].append(answer)
        if is_lost:
            answer(Encoded(error=_LOST))
        else:
            self._frames.put((operation, number, 0, body))

    def forget(self, number: int) -> None:
        with self._lock:
            self.num_open -= 1
            self._answers.pop(number, None)
        self._frames.put((Operation.CLOSE, number, 0, b""))

    def close(self) -> None:
        """Everything asked before is answered."""
        self._frames.put(None)
        for thread in self._threads:
            thread.join()
        self._child.wait()
        self._stdout.close()

    # --- threads ----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        stdin = self._child.stdin
        assert stdin is not None
        with suppress(OSError):  # the reader meets the end of the process, and tells
            while (frame := self._frames.get()) is not None:
                write_frame(stdin, *frame)  # type: ignore[arg-type]
        with suppress(OSError):
            stdin.close()

    def _read(self) -> None:
        while (frame := read_frame(self._stdout)) is not None:
            status, number, num_samples, body = frame
            with self._lock:
                answers = self._answers.get(number)
                answer = answers.popleft() if answers else None
            if answer is None:
                continue  # of an utterance that was closed
            if status == Status.FAILED:
                answer(Encoded(error=body.decode()))
            else:
                answer(Encoded(unpack_packets(body), num_samples))
        with self._lock:
            self._is_lost = True
            waiting = [answer for answers in self._answers.values() for answer in answers]
            self._answers.clear()
        if waiting:
            log.error("encoder_process_lost", pid=self._child.pid, num_waiting=len(waiting))
        for answer in waiting:
            answer(Encoded(error=_LOST))


class _RemoteEncoding:
    """Called from one thread."""

    def __init__(self, process: _Process, number: int) -> None:
        self._process = process
        self._number = number
        self._is_closed = False

    def encode(self, samples: Samples, answer: Answer) -> None:
        self._process.ask(Operation.ENCODE, self._number, samples.tobytes(), answer)

    def flush(self, answer: Answer) -> None:
        self._process.ask(Operation.FLUSH, self._number, b"", answer)

    def finish(self, answer: Answer) -> None:
        self._process.ask(Operation.FINISH, self._number, b"", answer)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._process.forget(self._number)


class EncoderProcesses:
    def __init__(self, num_processes: int, *, opus_complexity: int) -> None:
        """Starts them and waits until they are ready. Raises EngineError."""
        self._opus_complexity = opus_complexity
        self._numbers = count()
        self._processes = [_Process() for _ in range(num_processes)]
        for process in self._processes:
            process.wait_until_ready()

    def open(self, audio: AudioFormat) -> _RemoteEncoding:
        pre_skip_48k(audio)  # refuses here what would fail there
        process = min(self._processes, key=lambda process: process.num_open)
        number = next(self._numbers)
        process.open(number, Opening(audio, self._opus_complexity))
        return _RemoteEncoding(process, number)

    def close(self) -> None:
        for process in self._processes:
            process.close()
