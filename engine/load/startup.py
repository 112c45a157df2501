"""The models' kernels and graphs at start-up: compiled all at the same time, then captured one model after the other.

With an empty Triton cache compiling is nearly all of a start. Triton lets other threads run while LLVM and ptxas work:
two threads compile almost twice as fast as one. No two models may launch the same kernel: Triton does not guard what it
does when a compiled kernel is first launched.
"""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from queue import SimpleQueue

import structlog
import torch

from voicegate.engine.device.capture import Capturable
from voicegate.engine.device.lanes import Lane
from voicegate.engine.load.progress import Progress

log = structlog.get_logger()


def freeze_heap() -> None:
    """Have Python's garbage collector look no more at what there is by now: it lasts as long as the engine does.

    torch, Triton and the models are some 300,000 objects, and while it looks at them all no thread runs (docs/adr/0010
    says for how long). `gc.unfreeze` takes it back.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    graphs: Capturable
    lane: Lane


class _Step(Enum):
    BUCKET = "one more bucket has run"


_Outcome = str | BaseException  # of a thread: a line to tell, or why there is none


class ModelStart:
    """Models are added as they are loaded, then `finish` is called once; all from one thread, which also tells."""

    def __init__(self, device: torch.device, progress: Progress) -> None:
        self._device = device
        self.progress = progress
        self._models: list[_Model] = []

    def add(self, name: str, graphs: Capturable, lane: Lane) -> None:
        """Where there is nothing to compile, nothing will be done."""
        if graphs.num_buckets:
            self._models.append(_Model(name, graphs, lane))

    def finish(self) -> None:
        """Raises what a model's `compile` raised first, once the others' are done, or what a `capture` raises."""
        if not self._models:
            return
        with timed("kernels compiled", self.progress):
            self._compile()
        with timed("graphs captured", self.progress):
            for each in self._models:
                started_s = time.monotonic()
                with each.lane.active():
                    each.graphs.capture()
                duration_s = time.monotonic() - started_s
                self.progress.line(f"{each.name}: {each.graphs.num_graphs} CUDA graphs in {duration_s:.1f} s")

    def _compile(self) -> None:
        """In a thread for each model."""
        if self._device.type == "cuda":
            _set_up_once(self._device)
        outcomes: SimpleQueue[_Outcome | _Step] = SimpleQueue()
        threads = [
            # Daemons, as the engine's own thread: a process that is stopped while it starts does not wait for them.
            threading.Thread(target=self._compile_in_thread, args=(each, outcomes), name="compiler", daemon=True)
            for each in self._models
        ]
        for thread in threads:
            thread.start()
        errors = self._tell_of(outcomes, len(threads))
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _tell_of(self, outcomes: SimpleQueue[_Outcome | _Step], num_threads: int) -> list[BaseException]:
        """Until every thread has had its outcome; what went wrong, in order."""
        num_steps, num_done = sum(each.graphs.num_buckets for each in self._models), 0
        lines: list[str] = []
        errors: list[BaseException] = []
        while num_threads:
            outcome = outcomes.get()
            if isinstance(outcome, _Step):
                num_done += 1
                self.progress.share("compiling kernels", num_done, num_steps)
                continue
            num_threads -= 1
            if isinstance(outcome, BaseException):
                errors.append(outcome)
            else:
                lines.append(outcome)
        for line in lines:
            self.progress.line(line)
        return errors

    def _compile_in_thread(self, each: _Model, outcomes: SimpleQueue[_Outcome | _Step]) -> None:
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)  # a thread's own, as are the stream and the inference mode
            started_s = time.monotonic()
            with each.lane.active(), torch.inference_mode():
                each.graphs.compile(partial(outcomes.put, _Step.BUCKET))
            outcomes.put(f"{each.name}: kernels compiled in {time.monotonic() - started_s:.1f} s")
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            outcomes.put(error)


def _set_up_once(device: torch.device) -> None:
    """Sets up what threads would race for: Triton's driver, which is compiled at its first use.

    And the models are loaded on another stream than their lanes, which do not wait for it by themselves.
    """
    import triton  # noqa: PLC0415 - CPU installations lack it

    triton.runtime.driver.active.get_current_target()
    torch.cuda.synchronize(device)


@contextmanager
def timed(part: str, progress: Progress) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    duration_s = time.monotonic() - started_s
    log.info("loaded", part=part, seconds=round(duration_s, 3))
    progress.line(f"{part}: {duration_s:.1f} s")
