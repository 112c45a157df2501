"""One thread that waits for many descriptors and calls whoever is ready. It must not know what they carry.

Each wake of a thread takes Python's lock from the engine's (docs/adr/0019): what is ready together costs one.
"""

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

log = structlog.get_logger()

Work = Callable[[], None]

# Between two looks at what cannot be waited for. Lower -> more wakes while there is such; higher -> it is seen later.
_LOOK_S: Final = 0.01


class IoThread:
    """Its callees must not wait: all others would."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._work: deque[Work] = deque()
        self._bell, self._rope = socket.socketpair()
        self._is_rung = False
        self._looks: list[Callable[[], bool]] = []
        self._is_closing = False
        self._rope.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, self._do_work)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # --- from any thread --------------------------------------------------------------------------------------

    def call(self, work: Work) -> None:
        """`work` is done in the thread, in the order of the calls; nobody does it once this is closed."""
        self._work.append(work)
        if not self._is_rung:  # two who find it so ring twice, which does no harm
            self._is_rung = True
            with suppress(OSError):  # closed
                self._rope.send(b"\0")

    def close(self) -> None:
        """Returns when the thread has ended. Idempotent."""
        self.call(self._stop)
        self._thread.join()
        self._selector.close()
        self._bell.close()
        self._rope.close()

    # --- from the thread itself -------------------------------------------------------------------------------

    def watch(self, descriptor: int, events: int, work: Work) -> None:
        """`work` is called whenever `events` (of selectors) are so, until `unwatch`; and at the other end's end."""
        self._selector.register(descriptor, events, work)

    def unwatch(self, descriptor: int) -> None:
        """Idempotent. In this round `work` may still be called once."""
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def look_until(self, is_so: Callable[[], bool]) -> None:
        """`is_so` is called soon and then again and again until it is so."""
        self._looks.append(is_so)

    def _run(self) -> None:
        while not self._is_closing:
            ready = self._selector.select(_LOOK_S if self._looks else None)
            for key, _ in ready:
                _do(key.data)
            if self._looks:
                self._looks = [is_so for is_so in self._looks if not is_so()]

    def _do_work(self) -> None:
        self._bell.recv(4096)
        self._is_rung = False  # before looking: what is put from here on is seen, or rings anew
        while self._work:
            _do(self._work.popleft())

    def _stop(self) -> None:
        self._is_closing = True


def _do(work: Work) -> None:
    try:
        work()
    except Exception:
        log.exception("io_failed")  # one's trouble is not the others'
