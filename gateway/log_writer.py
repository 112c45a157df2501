"""Log lines leave in a thread of their own: nobody waits for whoever reads stderr, or does not. Must not know settings.

What the queue has no room for is dropped and counted, and the count is the next line that leaves.
"""

import logging
import os
import select
import sys
import threading
from contextlib import suppress
from queue import Full, Queue
from typing import Final, TextIO

# Lower loses lines sooner while the reader is slow; higher costs memory, some 300 bytes a line.
_MAX_WAITING_LINES: Final = 4096
# For which an exit waits for the last lines.
_FLUSH_S: Final = 1.0
# The field of the record that tells how many were dropped.
LINES: Final = "lines"


class DetachedHandler(logging.Handler):
    """Formats where the line is logged, which is cheap, and writes in its thread."""

    def __init__(self, stream: TextIO | None = None, *, max_waiting_lines: int = _MAX_WAITING_LINES) -> None:
        super().__init__()
        self._stream = sys.stderr if stream is None else stream
        self._waiting: Queue[str | threading.Event] = Queue(max_waiting_lines)
        self._num_dropped = 0
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(self.format(record) + "\n")
        except Full:
            with self._counting:
                self._num_dropped += 1
        except Exception:  # noqa: BLE001 - logging's own way with a record that cannot be formatted
            self.handleError(record)

    def flush(self) -> None:
        """Returns when all lines so far are written, or after a second."""
        is_written = threading.Event()
        with suppress(Full):
            self._waiting.put(is_written, timeout=_FLUSH_S)
            is_written.wait(_FLUSH_S)

    def _write_all(self) -> None:
        while True:
            match self._waiting.get():
                case str(line):
                    self._write(line)
                    self._tell_dropped()
                case is_written:
                    is_written.set()

    def _tell_dropped(self) -> None:
        with self._counting:
            num_dropped, self._num_dropped = self._num_dropped, 0
        if num_dropped:
            record = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": "log lines dropped"}
            self._write(self.format(logging.makeLogRecord({**record, LINES: num_dropped})) + "\n")

    def _write(self, line: str) -> None:
        """Past Python's own buffer, whose lock would hold up an exit while nobody reads. Errors end nothing."""
        with suppress(OSError, ValueError):
            try:
                descriptor = self._stream.fileno()
            except OSError:  # it is in memory
                self._stream.write(line)
                return
            data = line.encode(errors="backslashreplace")
            while data:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:  # somebody made it so
                    select.select([], [descriptor], [])
