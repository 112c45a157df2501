"""The models' kernels and graphs at start-up: compiled all at the same time, then captured one model after the other.

With an empty Triton cache compiling is nearly all of a start. Triton lets other threads run while LLVM and ptxas work:
two threads compile almost twice as fast as one. No two models may launch the same kernel: Triton does not guard what it
does when a compiled kernel is first launched.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

import structlog
import torch

from engine.lanes import Lane

log = structlog.get_logger()

Report = Callable[[str], None]


def freeze_heap() -> None:
    """Have Python's garbage collector look no more at what there is by now: it lasts as long as the engine does.

    torch, Triton and the models are some 300,000 objects, and to look at them all takes 100 to 200 ms, in which no
    thread runs. `gc.unfreeze` takes it back.
    """
    gc.collect()
    gc.freeze()


class Capturable(Protocol):
    def compile(self) -> None:
        """Run every bucket once, on the current stream: its kernels are compiled and loaded then."""

    def capture(self, report: Report) -> None:
        """`compile`, which is quick the second time, then capture every graph. Nothing is compiled or captured later.

        Alone on the device: no other thread may launch, allocate or compile meanwhile.
        """


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    model: Capturable
    lane: Lane


_Outcome = list[str] | BaseException  # lines to report, or why there are none


class ModelStart:
    """Models are added as they are loaded, then `finish` is called once; all from one thread, which also reports."""

    def __init__(self, device: torch.device, report: Report, *, is_side_by_side: bool) -> None:
        """Without `is_side_by_side`, a model is compiled and captured as it is added."""
        self._device = device
        self.report = report
        self._is_side_by_side = is_side_by_side
        self._models: list[_Model] = []

    def add(self, name: str, model: Capturable, lane: Lane) -> None:
        if self._is_side_by_side:
            self._models.append(_Model(name, model, lane))
            return
        with lane.active():
            model.capture(self.report)

    def finish(self) -> None:
        """Raises what a model's `compile` raised first, once the others' are done, or what a `capture` raises."""
        if not self._models:
            return
        with timed("kernels compiled", self.report):
            self._compile()
        with timed("graphs captured", self.report):
            for each in self._models:
                with each.lane.active():
                    each.model.capture(self.report)

    def _compile(self) -> None:
        """In a thread for each lane: models that share one are compiled one after the other."""
        if self._device.type == "cuda":
            _set_up_once(self._device)
        by_lane: dict[Lane, list[_Model]] = {}
        for each in self._models:
            by_lane.setdefault(each.lane, []).append(each)
        outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        threads = [
            # Daemons, as the engine's own thread: a process that is stopped while it starts does not wait for them.
            threading.Thread(target=self._compile_in_thread, args=(models, outcomes), name="compiler", daemon=True)
            for models in by_lane.values()
        ]
        for thread in threads:
            thread.start()
        errors: list[BaseException] = []
        for _ in threads:
            outcome = outcomes.get()
            if isinstance(outcome, BaseException):
                errors.append(outcome)
            else:
                for line in outcome:
                    self.report(line)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _compile_in_thread(self, models: Sequence[_Model], outcomes: SimpleQueue[_Outcome]) -> None:
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)  # a thread's own, as are the stream and the inference mode
            lines: list[str] = []
            for each in models:
                started_s = time.monotonic()
                with each.lane.active(), torch.inference_mode():
                    each.model.compile()
                lines.append(f"{each.name}: kernels compiled in {time.monotonic() - started_s:.1f} s")
            outcomes.put(lines)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            outcomes.put(error)


def _set_up_once(device: torch.device) -> None:
    """What threads would race for: Triton's driver, which is compiled at its first use.

    And the models are loaded on another stream than their lanes, which do not wait for it by themselves.
    """
    import triton  # noqa: PLC0415 - CPU installations lack it

    triton.runtime.driver.active.get_current_target()
    torch.cuda.synchronize(device)


@contextmanager
def timed(part: str, report: Report) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    duration_s = time.monotonic() - started_s
    log.info("loaded", part=part, seconds=round(duration_s, 3))
    report(f"{part}: {duration_s:.1f} s")
