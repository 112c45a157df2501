"""One encoder process as the engine sees it: its pipes, and the utterances that it encodes.

It tells when it is ready and when it is lost, and must not know what is done about that (encoder_pool).
"""

import os
import selectors
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import BinaryIO, Final, cast

import msgspec
import numpy as np
import structlog

from voicegate.engine.audio.encoder_wire import FrameReader, Operation, Status, pack_header, unpack_packets
from voicegate.engine.audio.encoding import Answer, Encoded, TellFailure
from voicegate.engine.audio.input_pipe import InputPipe, Piece
from voicegate.engine.audio.io_thread import IoThread
from voicegate.engine.audio.packets import Samples
from voicegate.engine.child_process import start_module
from voicegate.engine.interface import AudioFormat
from voicegate.engine.pulse import PulseWatch

log = structlog.get_logger()

_MODULE: Final = "voicegate.engine.audio.encoder_process"
_LOST: Final = "its encoder process has ended"

# Between two looks at it. Higher -> one that hangs, or is lost and due again, is noticed later.
LOOK_S: Final = 1.0
# For which it has been asked and has answered nothing. Lower -> a process that merely lacks a core is ended with its
# utterances; higher -> they stay silent for longer, and their samples take more memory.
_PATIENCE_S: Final = 12.0
_START_PATIENCE_S: Final = 60.0  # a cold disk
# From the end of its output to its own; what takes longer than this is killed.
_EXIT_S: Final = 1.0
_READ_BYTES: Final = 64 * 1024  # what a pipe holds


class EncoderChild:
    """Starting -> ready -> lost. Frames of an utterance are answered in order. Only `wait_for_end` waits.

    While its output is read its pid is its own: it is reaped behind the end of that.
    """

    def __init__(self, io: IoThread, on_change: "Callable[[EncoderChild], None]") -> None:
        """`on_change` is called from the I/O thread when it is ready and when it is lost. Raises OSError."""
        self._child = start_module(_MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._io = io
        self._on_change = on_change
        self._stdout = cast(BinaryIO, self._child.stdout)
        self._input = InputPipe(cast(BinaryIO, self._child.stdin), lambda: io.call(self._watch_input))
        self._frames = FrameReader()
        self._numbers = count()
        self._has_ended = threading.Event()  # lost, told, and its process is gone
        self._lock = threading.Lock()  # over all that follows
        self._open: dict[int, RemoteEncoding] = {}
        self._is_ready = False
        self._is_lost = False
        self._is_ending = False
        self._num_heard = 0  # frames from it
        self._silence = PulseWatch(_START_PATIENCE_S, LOOK_S)
        io.call(lambda: io.watch(self._stdout.fileno(), selectors.EVENT_READ, self._receive))

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_ready(self) -> bool:
        return self._is_ready and not self._is_lost

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    @property
    def num_open(self) -> int:
        return len(self._open)

    # --- from the engine's thread -----------------------------------------------------------------------------

    def open(self, audio: AudioFormat) -> "RemoteEncoding":
        """Its encoding has failed already if this process is lost. The process hears of it with what is asked first.

        To write wakes the process, which takes a new request 0.1 ms of the engine's thread before its text is read.
        """
        encoding = RemoteEncoding(self, next(self._numbers), audio)
        with self._lock:
            if self._is_lost:
                encoding.failure = _LOST
            else:
                self._open[encoding.number] = encoding
        return encoding

    def ask(self, encoding: "RemoteEncoding", operation: Operation, body: Piece, answer: Answer) -> None:
        with self._lock:
            if encoding.number not in self._open:
                return  # its failure has been told
            encoding.answers.append(answer)
        frame = pack_header(operation, encoding.number, 0, len(body)), body
        self._input.put(*encoding.take_opening(), *frame)

    def on_failure(self, encoding: "RemoteEncoding", tell: TellFailure) -> None:
        with self._lock:
            encoding.tell_failure = tell
            failure = encoding.failure
        if failure is not None:
            tell(failure)

    def forget(self, encoding: "RemoteEncoding") -> None:
        with self._lock:
            is_open = self._open.pop(encoding.number, None) is not None
        if is_open and encoding.is_heard_of:
            self._input.put(pack_header(Operation.CLOSE, encoding.number, 0, 0), b"")

    # --- from the pool ----------------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """Kill it if it has owed something for too long."""
        with self._lock:
            owes = not self._is_ready or any(encoding.answers for encoding in self._open.values())
            is_silent = self._silence.look(self._num_heard if owes else None, now_s)
            if self._is_lost or not is_silent:
                return
        log.error("encoder_process_hangs", pid=self.pid)
        self._kill()

    def end(self) -> None:
        """Let it answer what it was asked, and end."""
        self._is_ending = True
        self._input.end()

    def wait_for_end(self, timeout_s: float) -> None:
        """After `end`: when that takes longer it is killed, and what it still owes has failed."""
        if not self._has_ended.wait(timeout_s):
            log.error("encoder_process_hangs", pid=self.pid)
            self._kill()
            self._has_ended.wait(_EXIT_S)

    def _kill(self) -> None:
        with self._lock:
            if not self._is_lost:
                self._child.kill()

    # --- from the I/O thread ----------------------------------------------------------------------------------

    def _watch_input(self) -> None:
        if not self._is_lost:
            self._io.watch(self._input.descriptor, selectors.EVENT_WRITE, self._write)

    def _write(self) -> None:
        if not self._is_lost and self._input.write_rest():
            self._io.unwatch(self._input.descriptor)

    def _receive(self) -> None:
        if self._is_lost:
            return
        try:
            data = os.read(self._stdout.fileno(), _READ_BYTES)
            for frame in self._frames.feed(data):
                self._take(*frame)
        except Exception:
            log.exception("encoder_answer_failed", pid=self.pid)
            data = b""
        if not data:
            self._lose()

    def _take(self, status: int, number: int, num_samples: int, body: bytes) -> None:
        if status == Status.READY:
            with self._lock:
                self._is_ready = True
                self._silence = PulseWatch(_PATIENCE_S, LOOK_S)
            self._on_change(self)
            return
        has_failed = status == Status.FAILED
        with self._lock:
            self._num_heard += 1
            encoding = self._open.get(number)
            answer = encoding.answers.popleft() if encoding is not None and encoding.answers else None
            if encoding is not None and has_failed:
                del self._open[number]
        if encoding is not None and has_failed:
            self._fail(encoding, body.decode())
        elif answer is not None:
            answer(Encoded(unpack_packets(body), num_samples))

    def _lose(self) -> None:
        with self._lock:
            self._is_lost = True
            encodings = list(self._open.values())
            self._open.clear()
        self._io.unwatch(self._stdout.fileno())
        self._stdout.close()
        self._io.unwatch(self._input.descriptor)
        self._input.close()
        kill_at_s = time.monotonic() + _EXIT_S
        self._io.look_until(lambda: self._is_gone(kill_at_s, len(encodings)))
        for encoding in encodings:
            self._fail(encoding, _LOST)
        self._on_change(self)

    def _is_gone(self, kill_at_s: float, num_utterances: int) -> bool:
        exit_status = self._child.poll()
        if exit_status is None:
            if time.monotonic() >= kill_at_s:  # it has closed its output and goes on
                self._child.kill()
            return False
        if not self._is_ending:
            log.error("encoder_process_lost", pid=self.pid, exit_status=exit_status, num_utterances=num_utterances)
        self._has_ended.set()
        return True

    def _fail(self, encoding: "RemoteEncoding", reason: str) -> None:
        with self._lock:
            encoding.failure = reason
            tell = encoding.tell_failure
        if tell is not None:
            tell(reason)


class RemoteEncoding:
    """Called from one thread. What it holds for its process is under that one's lock."""

    def __init__(self, child: EncoderChild, number: int, audio: AudioFormat) -> None:
        self._child = child
        self._audio = audio
        self.number = number
        self.is_heard_of = False  # by the process
        self.answers: deque[Answer] = deque()
        self.tell_failure: TellFailure | None = None
        self.failure: str | None = None

    def take_opening(self) -> Sequence[bytes]:
        """The frame that has to stand before its first."""
        if self.is_heard_of:
            return ()
        self.is_heard_of = True
        body = msgspec.json.encode(self._audio)
        return pack_header(Operation.OPEN, self.number, 0, len(body)), body

    def on_failure(self, tell: TellFailure) -> None:
        self._child.on_failure(self, tell)

    def encode(self, samples: Samples, answer: Answer) -> None:
        self._child.ask(self, Operation.ENCODE, np.ascontiguousarray(samples).view(np.uint8).data, answer)

    def flush(self, answer: Answer) -> None:
        self._child.ask(self, Operation.FLUSH, b"", answer)

    def finish(self, answer: Answer) -> None:
        self._child.ask(self, Operation.FINISH, b"", answer)

    def close(self) -> None:
        self._child.forget(self)
