"""One encoder process as the engine sees it: its pipes, a thread for each, and the utterances that it encodes.

It tells when it is ready and when it is lost, and must not know what is done about that (encoder_pool).
"""

import subprocess
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import BinaryIO, Final, cast

import msgspec
import structlog

from voicegate.engine.audio.encoder_wire import Operation, Status, read_frame, unpack_packets, write_frame
from voicegate.engine.audio.encoding import Answer, Encoded, TellFailure
from voicegate.engine.audio.packets import Samples
from voicegate.engine.child_process import start_module
from voicegate.engine.interface import AudioFormat

log = structlog.get_logger()

_MODULE: Final = "voicegate.engine.audio.encoder_process"
_LOST: Final = "its encoder process has ended"

# Ticks in which it has been asked and has answered nothing. Lower -> a process that merely lacks a core is ended with
# its utterances; higher -> they stay silent for longer, and their samples take more memory.
_PATIENCE_TICKS: Final = 10
_START_PATIENCE_TICKS: Final = 60  # a cold disk
# From the end of its output to its own; what takes longer than this is killed.
_EXIT_S: Final = 1.0

_Frame = tuple[Operation, int, int, bytes]


class EncoderChild:
    """Starting -> ready -> lost. Frames of an utterance are answered in order. Only `wait_for_end` waits."""

    def __init__(self, on_change: "Callable[[EncoderChild], None]") -> None:
        """`on_change` is called from another thread when it is ready and when it is lost. Raises OSError."""
        self._child = start_module(_MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._on_change = on_change
        self._lock = threading.Lock()  # over all that follows
        self._open: dict[int, RemoteEncoding] = {}
        self._is_ready = False
        self._is_lost = False
        self._is_ending = False
        self._num_heard = 0  # frames from it
        self._num_heard_at_tick = 0
        self._silent_ticks = 0
        self._numbers = count()
        self._frames: SimpleQueue[_Frame | None] = SimpleQueue()  # None: that was all
        self._writer = threading.Thread(target=self._write, name="encoder-writer", daemon=True)
        self._reader = threading.Thread(target=self._read, name="encoder-reader", daemon=True)
        self._writer.start()
        self._reader.start()

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
        """Its encoding has failed already if this process is lost."""
        encoding = RemoteEncoding(self, next(self._numbers))
        with self._lock:
            if self._is_lost:
                encoding.failure = _LOST
                return encoding
            self._open[encoding.number] = encoding
        self._frames.put((Operation.OPEN, encoding.number, 0, msgspec.json.encode(audio)))
        return encoding

    def ask(self, encoding: "RemoteEncoding", operation: Operation, body: bytes, answer: Answer) -> None:
        with self._lock:
            if encoding.number not in self._open:
                return  # its failure has been told
            encoding.answers.append(answer)
        self._frames.put((operation, encoding.number, 0, body))

    def on_failure(self, encoding: "RemoteEncoding", tell: TellFailure) -> None:
        with self._lock:
            encoding.tell_failure = tell
            failure = encoding.failure
        if failure is not None:
            tell(failure)

    def forget(self, encoding: "RemoteEncoding") -> None:
        with self._lock:
            is_open = self._open.pop(encoding.number, None) is not None
        if is_open:
            self._frames.put((Operation.CLOSE, encoding.number, 0, b""))

    # --- from the pool ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Kill it if it has owed something for too long. Looks are counted, not seconds.

        Seconds also pass while all of us are stopped (Ctrl-Z).
        """
        with self._lock:
            owes = not self._is_ready or any(encoding.answers for encoding in self._open.values())
            is_silent = owes and self._num_heard == self._num_heard_at_tick
            self._num_heard_at_tick = self._num_heard
            self._silent_ticks = self._silent_ticks + 1 if is_silent else 0
            if self._is_lost or self._silent_ticks < (_PATIENCE_TICKS if self._is_ready else _START_PATIENCE_TICKS):
                return
        log.error("encoder_process_hangs", pid=self.pid)
        self._kill()

    def end(self) -> None:
        """Let it answer what it was asked, and end."""
        self._is_ending = True
        self._frames.put(None)

    def wait_for_end(self, timeout_s: float) -> None:
        """After `end`: when that takes longer it is killed, and what it still owes has failed."""
        self._reader.join(timeout_s)
        if self._reader.is_alive():
            log.error("encoder_process_hangs", pid=self.pid)
            self._kill()
            self._reader.join(_EXIT_S)
        self._writer.join(_EXIT_S)

    def _kill(self) -> None:
        with self._lock:  # the reader reaps it after it was lost: until then the pid is its own
            if not self._is_lost:
                self._child.kill()

    # --- threads ----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        stdin = cast(BinaryIO, self._child.stdin)
        with suppress(OSError):  # the reader meets the end of the process, and tells
            while (frame := self._frames.get()) is not None:
                write_frame(stdin, *frame)
        with suppress(OSError):
            stdin.close()

    def _read(self) -> None:
        stdout = cast(BinaryIO, self._child.stdout)
        try:
            while (frame := read_frame(stdout)) is not None:
                self._take(*frame)
        finally:
            stdout.close()
            self._lose()

    def _take(self, status: int, number: int, num_samples: int, body: bytes) -> None:
        if status == Status.READY:
            self._is_ready = True
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
        self._frames.put(None)
        for encoding in encodings:
            self._fail(encoding, _LOST)
        self._on_change(self)
        try:
            exit_status = self._child.wait(_EXIT_S)
        except subprocess.TimeoutExpired:  # it has closed its output and goes on
            self._child.kill()
            exit_status = self._child.wait()
        if not self._is_ending:
            log.error("encoder_process_lost", pid=self.pid, exit_status=exit_status, num_utterances=len(encodings))

    def _fail(self, encoding: "RemoteEncoding", reason: str) -> None:
        with self._lock:
            encoding.failure = reason
            tell = encoding.tell_failure
        if tell is not None:
            tell(reason)


class RemoteEncoding:
    """Called from one thread. What it holds for its process is under that one's lock."""

    def __init__(self, child: EncoderChild, number: int) -> None:
        self._child = child
        self.number = number
        self.answers: deque[Answer] = deque()
        self.tell_failure: TellFailure | None = None
        self.failure: str | None = None

    def on_failure(self, tell: TellFailure) -> None:
        self._child.on_failure(self, tell)

    def encode(self, samples: Samples, answer: Answer) -> None:
        self._child.ask(self, Operation.ENCODE, samples.tobytes(), answer)

    def flush(self, answer: Answer) -> None:
        self._child.ask(self, Operation.FLUSH, b"", answer)

    def finish(self, answer: Answer) -> None:
        self._child.ask(self, Operation.FINISH, b"", answer)

    def close(self) -> None:
        self._child.forget(self)
