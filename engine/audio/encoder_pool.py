"""Encoders in processes of their own. 400 streams are 20,000 packets a second.

libopus runs without Python's lock, but a thread has to get it back after each packet, from an engine's thread that
holds it for milliseconds: on an H200's 16 cores four encoder threads fell a second behind at 300 streams while
the samples were there after 65 ms (docs/adr/0019). A process needs the lock of nobody.
"""

import threading
import time
from collections.abc import Mapping
from typing import Final

import structlog

from voicegate.engine.audio.encoder_child import EncoderChild, RemoteEncoding
from voicegate.engine.audio.io_thread import IoThread
from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.interface import AudioFormat, EngineError

log = structlog.get_logger()

_TICK_S: Final = 1.0
# A process that lived for shorter is followed later and later. Lower -> one that dies at certain utterances takes more
# of them with it; higher -> what was mended long ago still counts.
_LONG_LIFE_TICKS: Final = 60
_MAX_DELAY_TICKS: Final = 30
_START_TIMEOUT_S: Final = 120.0
# What was asked of a process takes it milliseconds. Higher -> the engine's end waits longer for one that hangs.
_CLOSE_TIMEOUT_S: Final = 5.0


class Seat:
    """Holds a process; says when another is due: at once after a long life, else after a growing delay. Pure."""

    def __init__(self, child: EncoderChild) -> None:
        self.child = child
        self._age_ticks = 0
        self._delay_ticks = 0  # between the loss of this child and the next
        self._left_ticks = 0  # of that

    @property
    def is_due(self) -> bool:
        return self.child.is_lost and self._left_ticks == 0

    def fill(self, child: EncoderChild) -> None:
        self.child = child
        self._age_ticks = 0
        self.put_off()

    def put_off(self) -> None:
        """The next one that is due comes later than the one before did."""
        self._delay_ticks = min(max(2 * self._delay_ticks, 1), _MAX_DELAY_TICKS)
        self._left_ticks = self._delay_ticks

    def tick(self) -> None:
        if self.child.is_lost:
            self._left_ticks = max(self._left_ticks - 1, 0)
            return
        self.child.tick()
        self._age_ticks += 1
        if self._age_ticks >= _LONG_LIFE_TICKS:
            self._delay_ticks = self._left_ticks = 0


class EncoderProcesses:
    """A lost process fails its own utterances; the others take new ones, and a thread here replaces it.

    While none is ready newcomers are to be refused (`unready_reason`): speech that cannot leave would hold the models'
    room, and the replacement may be lost too.
    """

    def __init__(self, num_processes: int) -> None:
        """Starts them and waits until they are ready. Raises EngineError."""
        self._changed = threading.Condition()  # a child is ready or lost, or this is to end
        self._num_lost = 0
        self._is_closing = False
        self._io = IoThread("encoder-io")  # of all of them
        self._seats: list[Seat] = []
        self._keeper = threading.Thread(target=self._keep, name="encoder-keeper", daemon=True)
        try:
            for _ in range(num_processes):
                self._seats.append(Seat(EncoderChild(self._io, self._child_changed)))
            self._wait_until_ready()
        except (OSError, EngineError) as error:
            self.close()
            raise EngineError(f"an encoder process did not start: {error}") from error
        self._keeper.start()

    @property
    def unready_reason(self) -> str | None:
        if any(seat.child.is_ready for seat in self._seats):
            return None
        return "no encoder process is alive; they are being replaced"

    @property
    def counters(self) -> Mapping[str, float]:
        """encoders_lost: processes that ended unasked."""
        return {"encoders_lost": self._num_lost}

    def open(self, audio: AudioFormat) -> RemoteEncoding:
        pre_skip_48k(audio)  # refuses here what would fail there
        # Without a ready one: one that is starting, whose utterances wait for it; or a lost one, where they fail.
        child = min((seat.child for seat in self._seats), key=lambda c: (c.is_lost, not c.is_ready, c.num_open))
        return child.open(audio)

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._keeper.is_alive():
            self._keeper.join()
        for seat in self._seats:
            seat.child.end()
        end_s = time.monotonic() + _CLOSE_TIMEOUT_S
        for seat in self._seats:
            seat.child.wait_for_end(max(end_s - time.monotonic(), 0.0))
        self._io.close()

    def _wait_until_ready(self) -> None:
        """Raises EngineError."""
        children = [seat.child for seat in self._seats]
        with self._changed:
            self._changed.wait_for(
                lambda: all(child.is_ready for child in children) or any(child.is_lost for child in children),
                timeout=_START_TIMEOUT_S,
            )
        if any(child.is_lost for child in children):
            raise EngineError("it ended at once; see its output above")
        if not all(child.is_ready for child in children):
            raise EngineError(f"it was not ready after {_START_TIMEOUT_S:.0f} s")

    def _child_changed(self, child: EncoderChild) -> None:
        with self._changed:
            self._num_lost += child.is_lost and not self._is_closing
            self._changed.notify_all()

    def _keep(self) -> None:
        """The keeper's thread: the engine's never waits for a process to start."""
        while True:
            with self._changed:
                is_woken = self._changed.wait_for(
                    lambda: self._is_closing or any(seat.is_due for seat in self._seats), timeout=_TICK_S
                )
                if self._is_closing:
                    return
            for seat in self._seats:
                if not is_woken:
                    seat.tick()
                elif seat.is_due:
                    self._replace(seat)

    def _replace(self, seat: Seat) -> None:
        try:
            child = EncoderChild(self._io, self._child_changed)
        except (OSError, RuntimeError) as error:  # no memory, no file descriptors, no thread
            log.error("encoder_process_not_started", reason=str(error))
            seat.put_off()
            return
        log.info("encoder_process_replaced", pid=child.pid, lost_pid=seat.child.pid)
        seat.fill(child)
