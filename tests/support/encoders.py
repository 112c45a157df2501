"""Encoder processes that a test kills and waits for."""

import os
import signal
from collections.abc import Callable

from tests.support.patience import PATIENCE_S
from voicegate.engine.audio.encoder_child import EncoderChild
from voicegate.engine.audio.encoder_pool import EncoderProcesses


def children(pool: EncoderProcesses) -> list[EncoderChild]:
    return [seat.child for seat in pool._seats]


def kill(child: EncoderChild) -> None:
    """Returns when it is known to be lost, and its utterances have been told."""
    os.kill(child.pid, signal.SIGKILL)
    child._reader.join(PATIENCE_S)
    assert child.is_lost


def until(pool: EncoderProcesses, is_so: Callable[[], bool]) -> None:
    """Looked at again when a process is ready or lost."""
    with pool._changed:
        assert pool._changed.wait_for(is_so, PATIENCE_S)


def until_whole(pool: EncoderProcesses, *, num_lost: int) -> None:
    until(pool, lambda: pool.counters["encoders_lost"] == num_lost and all(c.is_ready for c in children(pool)))
