"""A jitter buffer between the network and a sound card: PCM in as it comes, PCM out as it is due. Thread-safe, no
I/O."""

import threading
from collections import deque
from typing import Final

BYTES_PER_SAMPLE: Final = 2


class JitterBuffer:
    """s16le mono. Gives out silence until `prebuffer_ms` are there, and wherever it is empty."""

    def __init__(self, *, rate_hz: int, prebuffer_ms: int) -> None:
        self._rate_hz = rate_hz
        self._prebuffer_bytes = rate_hz * prebuffer_ms // 1000 * BYTES_PER_SAMPLE
        self._lock = threading.Lock()
        self._pieces: deque[bytes] = deque()
        self._num_bytes = 0
        self._played_bytes = 0
        self._num_underruns = 0
        self._is_playing = False
        self._is_empty = False  # so that one underrun counts once, however long
        self._is_complete = False

    @property
    def played_ms(self) -> int:
        """Played audio, without the silence between; as `Context.cancel` wants it."""
        return self._to_ms(self._played_bytes)

    @property
    def buffer_ms(self) -> int:
        return self._to_ms(self._num_bytes)

    @property
    def num_underruns(self) -> int:
        return self._num_underruns

    @property
    def is_drained(self) -> bool:
        """All audio has been given out, and no more comes."""
        return self._is_complete and not self._num_bytes

    def push(self, pcm: bytes) -> None:
        with self._lock:
            if pcm and not self._is_complete:
                self._pieces.append(pcm)
                self._num_bytes += len(pcm)
                self._is_playing = self._is_playing or self._num_bytes >= self._prebuffer_bytes

    def complete(self) -> None:
        """No more audio follows; what is there plays, prebuffer or not."""
        with self._lock:
            self._is_complete = True
            self._is_playing = True

    def clear(self) -> int:
        """Barge-in: drop what has not been given out. Returns `played_ms`."""
        with self._lock:
            self._pieces.clear()
            self._num_bytes = 0
            self._is_complete = True
            return self._to_ms(self._played_bytes)

    def pull(self, num_bytes: int) -> bytes:
        """Exactly `num_bytes`."""
        with self._lock:
            audio = self._take(num_bytes) if self._is_playing else b""
            missing = num_bytes - len(audio)
            is_short = missing > 0 and self._is_playing and not self._is_complete
            self._num_underruns += is_short and not self._is_empty
            self._is_empty = is_short
            self._played_bytes += len(audio)
            return audio + bytes(missing)

    def _take(self, num_bytes: int) -> bytes:
        taken: list[bytes] = []
        while num_bytes and self._pieces:
            piece = self._pieces.popleft()
            if len(piece) > num_bytes:
                self._pieces.appendleft(piece[num_bytes:])
                piece = piece[:num_bytes]
            taken.append(piece)
            num_bytes -= len(piece)
            self._num_bytes -= len(piece)
        return b"".join(taken)

    def _to_ms(self, num_bytes: int) -> int:
        return num_bytes // BYTES_PER_SAMPLE * 1000 // self._rate_hz
