"""A child's standard input: who puts frames into it never waits.

What the pipe takes is written at once by who puts it, which is one call and wakes no thread of ours; the rest waits
here for the I/O thread (docs/adr/0019).
"""

import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import BinaryIO, Final

Piece = bytes | memoryview

# Five seconds of samples. Lower -> bursts wake the I/O thread more often; higher -> with eight engines of one user,
# of eight processes each, the pipes come near to what Linux lets one user have (64 MiB).
_PIPE_BYTES: Final = 512 * 1024
_PIECES_AT_ONCE: Final = 64  # of one call; the system's limit is 1024


class InputPipe:
    """Frames leave whole and in the order of `put`; after the reader's end, or `close`, they are dropped."""

    def __init__(self, stream: BinaryIO, on_rest: Callable[[], None]) -> None:
        """`on_rest` is called by who puts what the pipe does not take: `write_rest` is due when it is writable."""
        self._stream = stream
        self._on_rest = on_rest
        self._lock = threading.Lock()  # over all that follows; who has it and finds no rest may write
        self._rest: deque[Piece] = deque()  # while there is some the I/O thread alone writes
        self._is_ending = False
        self._is_broken = False  # nobody reads; closed by `close` alone, for the I/O thread may watch the descriptor
        self.descriptor: Final = stream.fileno()
        os.set_blocking(self.descriptor, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # its user has too many pipes: a small one does, with more wakes
                fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    # --- from any thread --------------------------------------------------------------------------------------

    def put(self, *pieces: Piece) -> None:
        """Whole frames, of bytes; their owner may change them afterwards."""
        with self._lock:
            if self._is_ending or self._is_broken or self._stream.closed:
                return
            if self._rest:
                self._rest.extend(bytes(piece) for piece in pieces)
                return
            num_bytes = self._write(pieces)
            if num_bytes is None:
                self._break()
                return
            self._rest.extend(bytes(piece) for piece in _behind(pieces, num_bytes))
            has_rest = bool(self._rest)
        if has_rest:
            self._on_rest()

    def end(self) -> None:
        """Nothing follows: the reader meets the end behind what waits. Idempotent."""
        with self._lock:
            self._is_ending = True
            if not self._rest:
                self._stream.close()

    # --- from the I/O thread ----------------------------------------------------------------------------------

    def write_rest(self) -> bool:
        """As much as it takes now. True: nothing is left, until `on_rest` is called again."""
        with self._lock:
            pieces = tuple(islice(self._rest, _PIECES_AT_ONCE))
        num_bytes = self._write(pieces) if pieces else 0  # without the lock, so that who puts does not wait for it
        with self._lock:
            if num_bytes is None:
                self._break()
                return True
            for _ in pieces:
                self._rest.popleft()
            self._rest.extendleft(reversed(_behind(pieces, num_bytes)))
            if not self._rest and self._is_ending:
                self._stream.close()
            return not self._rest

    def close(self) -> None:
        """Drop what waits. Idempotent."""
        with self._lock:
            self._rest.clear()
            self._stream.close()

    def _write(self, pieces: Sequence[Piece]) -> int | None:
        """Bytes that it took; None: nobody reads any more, which whoever reads the answers meets too."""
        try:
            return os.writev(self.descriptor, pieces)
        except BlockingIOError:
            return 0
        except OSError:
            return None

    def _break(self) -> None:
        self._is_broken = True
        self._rest.clear()


def _behind(pieces: Sequence[Piece], num_bytes: int) -> list[Piece]:
    """The rest after the first `num_bytes`."""
    rest: list[Piece] = []
    for piece in pieces:
        if num_bytes < len(piece):
            rest.append(memoryview(piece)[num_bytes:])
        num_bytes = max(num_bytes - len(piece), 0)
    return rest
