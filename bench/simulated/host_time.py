"""Host time: CPU time of this machine that the engine's thread takes in a simulated run (`device.host_step_s`: beside a
GPU).

Only the core's own Python: not what the models' runners do (`host_us` of kernels-h200.json), nor the driver, nor what
hands samples to an encoder's process. It flatters: caches are warm, and no gateway takes the interpreter's lock.
"""

import time
from typing import Any, Final, NamedTuple

import numpy as np

_NAMES: Final = ("step", "llm_row", "flow_block", "command")
# Steps between two readings of the yardstick.
_STEPS_BETWEEN: Final = 10


class StepTime(NamedTuple):
    cpu_s: float
    num_llm_rows: int
    num_blocks: int  # of the flow that it begins, or one for a step of those that run
    num_commands: int  # of clients: nearly all are words


class HostTime:
    """CPU time doubles where others share this machine's cores. `yardsticks` are hardly touched by that: how often a
    fixed piece of Python, run every few steps, would have run in that time."""

    def __init__(self) -> None:
        self._steps: list[StepTime] = []
        self._yardsticks_s: list[float] = []

    def took(self, step: StepTime) -> None:
        self._steps.append(step)
        if len(self._steps) % _STEPS_BETWEEN == 0:
            begun_s = time.thread_time()
            _yardstick()
            self._yardsticks_s.append(time.thread_time() - begun_s)

    def figures(self) -> dict[str, Any]:
        """`us`: fitted to all steps, what one takes by itself, and what each of these adds."""
        counts = np.array([(1, *step[1:]) for step in self._steps], dtype=np.float64)
        cpu_s = np.array([step.cpu_s for step in self._steps])
        fitted, *_ = np.linalg.lstsq(counts, cpu_s, rcond=None)
        yardstick_s = float(np.mean(self._yardsticks_s))
        return {
            "cpu_s": round(float(cpu_s.sum()), 3),
            "yardstick_us": round(1e6 * yardstick_s, 1),
            "yardsticks": round(float(cpu_s.sum()) / yardstick_s),
            "us": {name: round(1e6 * seconds, 1) for name, seconds in zip(_NAMES, fitted.tolist(), strict=True)},
            "num": {name: int(num) for name, num in zip(_NAMES, counts.sum(axis=0).tolist(), strict=True)},
        }


def _yardstick() -> None:
    """Work like the core's: small objects, looked up, changed and put in order."""
    steps = {number: StepTime(number % 7, number, number, number) for number in range(100)}
    for number in range(0, 100, 2):
        steps[number] = steps[number]._replace(num_blocks=steps[number + 1].num_llm_rows)
    sorted(steps.values(), key=lambda step: (step.cpu_s, step.num_blocks))
