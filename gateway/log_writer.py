"""Log lines leave in a thread of their own: no one waits for a reader of stderr. Must not know settings.

What the queue has no room for is dropped and counted, and the count is the next line that leaves. Of a kind that comes
too often, lines are left out before that, and counted too.
"""

import logging
import os
import select
import sys
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, TextIO

from voicegate.gateway.log_bounds import LineBounds

# Lower loses lines sooner while the reader is slow; higher costs memory: some 300 bytes a line, tracebacks 50 kB.
_MAX_WAITING_LINES: Final = 4096
_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
# For which an exit waits for the last lines.
_FLUSH_S: Final = 1.0
# The fields of the records that tell how many were dropped, or left out, and of which kind.
LINES: Final = "lines"
KIND: Final = "kind"


class DetachedHandler(logging.Handler):
    """Formats where the line is logged, which is cheap, and writes in its thread."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        max_waiting_lines: int = _MAX_WAITING_LINES,
        max_waiting_bytes: int = _MAX_WAITING_BYTES,
        bounds: LineBounds | None = None,
    ) -> None:
        """`bounds` None: no kind is too frequent."""
        super().__init__()
        self._stream = sys.stderr if stream is None else stream
        # Both may be entered anew in the middle of themselves: a finalizer may log wherever memory is asked for.
        self._waiting: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()  # None: look at the bounds
        self._counting = threading.RLock()  # over all that follows
        self._room_lines = max_waiting_lines
        self._room_bytes = max_waiting_bytes
        self._num_dropped = 0
        self._bounds = bounds
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Emits a library's line: its messages may differ each time, so all of a logger's are one kind."""
        if not self.admits(record.name):
            return
        try:
            self.put(self.format(record))
        except Exception:  # noqa: BLE001 - logging's own way with a record that cannot be formatted
            self.handleError(record)

    def put(self, text: str) -> None:
        """A line, if there is room for it."""
        line = _as_line(text)
        with self._counting:
            if not self._room_lines or self._room_bytes < len(line):
                self._num_dropped += 1
                return
            self._room_lines -= 1
            self._room_bytes -= len(line)
        self._waiting.put(line)

    def flush(self) -> None:
        """Returns when all lines so far are written, or after a second."""
        is_written = threading.Event()
        self._waiting.put(is_written)
        is_written.wait(_FLUSH_S)

    def admits(self, kind: str) -> bool:
        """Whether a line of that kind may leave; if not, it is counted."""
        if self._bounds is None:
            return True
        with self._counting:
            had_report = self._bounds.has_report
            is_admitted = self._bounds.admits(kind, time.monotonic())
        if not (is_admitted or had_report):
            self._waiting.put(None)
        return is_admitted

    def _write_all(self) -> None:
        while True:
            match self._next_waiting():
                case bytes(line):
                    self._write(line)
                    self._make_room(len(line))
                case None:
                    pass
                case is_written:
                    self._tell_left_out(float("inf"))
                    is_written.set()
            self._tell_left_out(time.monotonic())

    def _next_waiting(self) -> bytes | threading.Event | None:
        with self._counting:
            report_s = None if self._bounds is None else self._bounds.next_report_s
        try:
            return self._waiting.get(timeout=None if report_s is None else max(0.0, report_s - time.monotonic()))
        except Empty:
            return None

    def _tell_left_out(self, now_s: float) -> None:
        with self._counting:
            left_out = [] if self._bounds is None else self._bounds.take_report(now_s)
        for kind, num_lines in left_out:
            self._write_account("log lines left out: there were too many of a kind", {LINES: num_lines, KIND: kind})

    def _make_room(self, num_bytes: int) -> None:
        """And tell what was dropped for want of it."""
        with self._counting:
            self._room_lines += 1
            self._room_bytes += num_bytes
            num_dropped, self._num_dropped = self._num_dropped, 0
        if num_dropped:
            self._write_account("log lines dropped", {LINES: num_dropped})

    def _write_account(self, event: str, fields: dict[str, object]) -> None:
        record = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": event}
        self._write(_as_line(self.format(logging.makeLogRecord({**record, **fields}))))

    def _write(self, line: bytes) -> None:
        """Past Python's own buffer, whose lock would hold up an exit while no one reads. Errors end nothing."""
        with suppress(OSError, ValueError):
            try:
                descriptor = self._stream.fileno()
            except OSError:  # it is in memory
                self._stream.write(line.decode())
                return
            while line:
                try:
                    line = line[os.write(descriptor, line) :]
                except BlockingIOError:  # somebody made it so
                    select.select([], [descriptor], [])


def _as_line(text: str) -> bytes:
    return f"{text}\n".encode(errors="backslashreplace")
