"""Encoders in processes of their own. 400 streams are 20,000 packets a second.

libopus runs without Python's lock, but a thread has to get it back after each packet, from an engine's thread that
holds it for milliseconds: on an H200's 16 cores four encoder threads fell a second behind at 300 streams while
the samples were there after 65 ms (docs/adr/0019). A process needs the lock of nobody.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from voicegate.engine.audio.encoder_child import LOOK_S, EncoderChild, RemoteEncoding
from voicegate.engine.audio.io_thread import IoThread
from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.child_process import Backoff
from voicegate.engine.interface import AudioFormat, EngineError

log = structlog.get_logger()

_START_TIMEOUT_S: Final = 120.0
# A process needs milliseconds for its requests. Higher -> the engine's end waits longer for one that hangs.
_CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class _Held:
    """Holds a process, and after its loss the next."""

    child: EncoderChild
    since_s: float
    backoff: Backoff = field(default_factory=Backoff)
    due_s: float | None = None  # of the next, once the loss of this one was noticed

    @property
    def is_newly_lost(self) -> bool:
        return self.child.is_lost and self.due_s is None


class EncoderProcesses:
    """A lost process fails its own utterances; the others take new ones, and a thread here replaces it.

    While none is ready new requests are to be refused (`unready_reason`): speech that cannot leave would hold the
    models' room, and the replacement may be lost too.
    """

    def __init__(self, num_processes: int) -> None:
        """Starts them and waits until they are ready. Raises EngineError."""
        self._changed = threading.Condition()  # a child is ready or lost, or this is to end
        self._num_lost = 0
        self._is_closing = False
        self._io = IoThread("encoder-io")  # of all of them
        self._held: list[_Held] = []
        self._keeper = threading.Thread(target=self._keep, name="encoder-keeper", daemon=True)
        try:
            for _ in range(num_processes):
                self._held.append(_Held(EncoderChild(self._io, self._child_changed), time.monotonic()))
            self._wait_until_ready()
        except (OSError, EngineError) as error:
            self.close()
            raise EngineError(f"an encoder process did not start: {error}") from error
        self._keeper.start()

    @property
    def unready_reason(self) -> str | None:
        if any(held.child.is_ready for held in self._held):
            return None
        return "no encoder process is alive; they are being replaced"

    @property
    def counters(self) -> Mapping[str, float]:
        """encoders_lost: processes that ended unasked."""
        return {"encoders_lost": self._num_lost}

    def open(self, audio: AudioFormat) -> RemoteEncoding:
        pre_skip_48k(audio)  # refuses here what would fail there
        # Without a ready one: one that is starting, whose utterances wait for it; or a lost one, where they fail.
        child = min((held.child for held in self._held), key=lambda c: (c.is_lost, not c.is_ready, c.num_open))
        return child.open(audio)

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._keeper.is_alive():
            self._keeper.join()
        for held in self._held:
            held.child.end()
        end_s = time.monotonic() + _CLOSE_TIMEOUT_S
        for held in self._held:
            held.child.wait_for_end(max(end_s - time.monotonic(), 0.0))
        self._io.close()

    def _wait_until_ready(self) -> None:
        """Raises EngineError."""
        children = [held.child for held in self._held]
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
                self._changed.wait_for(
                    lambda: self._is_closing or any(held.child.is_lost and held.due_s is None for held in self._held),
                    timeout=LOOK_S,
                )
                if self._is_closing:
                    return
            for held in self._held:
                self._tend(held, time.monotonic())

    def _tend(self, held: _Held, now_s: float) -> None:
        if not held.child.is_lost:
            held.child.look(now_s)
            return
        if held.is_newly_lost:
            held.due_s = now_s + held.backoff.delay_s(now_s - held.since_s)
        if held.due_s is not None and now_s < held.due_s:
            return
        try:
            child = EncoderChild(self._io, self._child_changed)
        except (OSError, RuntimeError) as error:  # no memory, no file descriptors, no thread
            log.error("encoder_process_not_started", reason=str(error))
            held.due_s = now_s + held.backoff.delay_s(0.0)
            return
        log.info("encoder_process_replaced", pid=child.pid, lost_pid=held.child.pid)
        held.child, held.since_s, held.due_s = child, now_s, None
