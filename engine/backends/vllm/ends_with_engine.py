"""In vLLM's own process: it ends when the process that started it does, however that ended.

vLLM 0.26 does not watch the process that started it. Killed, that one leaves an engine which waits, or computes, for
ever, with its GPU memory. vLLM imports this module by name (`worker_extension_cls`), before it takes any of the GPU.
"""

import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess
from typing import Final

from voicegate.engine.child_process import SIGNALS_OF_THE_GROUP

_STATUS: Final = 1


class EndsWithEngine:
    """Extends vLLM's worker by nothing: importing its module is what matters."""


def begin(parent: BaseProcess) -> None:
    """Only in the main thread of a process that Python's multiprocessing started."""
    # It inherited a mask that blocks these. Only its parent may end it: a group's signals are for who serves.
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS_OF_THE_GROUP)
    threading.Thread(target=_end_after, args=(parent,), name="parent-watch", daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()  # reads a pipe whose other end its parent alone holds
    os._exit(_STATUS)  # as it is: its main thread may never come back from the GPU


if (_parent := multiprocessing.parent_process()) is not None:
    begin(_parent)
