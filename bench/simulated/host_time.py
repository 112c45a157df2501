"""What the engine's thread takes in a simulated run, in CPU time of this machine (`device.host_step_s`: beside a GPU).

Only the core's own Python: not what the models' runners do (`host_us` of kernels-h200.json), nor the driver, nor what
hands samples to an encoder's process. It flatters: caches are warm, and no gateway takes the interpreter's lock.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

_NAMES: Final = ("step", "llm_row", "flow_block", "command")


class StepTime(NamedTuple):
    cpu_s: float
    num_llm_rows: int
    num_blocks: int  # of the flow that it begins, or one for a step of those that run
    num_commands: int  # of clients: nearly all are words


def host_time(steps: Sequence[StepTime]) -> dict[str, Any]:
    """In microseconds, fitted to all steps: what one takes by itself, and what each of these adds."""
    counts = np.array([_counts(step) for step in steps], dtype=np.float64)
    cpu_s = np.array([step.cpu_s for step in steps])
    fitted, *_ = np.linalg.lstsq(counts, cpu_s, rcond=None)
    return {
        "cpu_s": round(float(cpu_s.sum()), 3),
        "us": {name: round(1e6 * seconds, 1) for name, seconds in zip(_NAMES, fitted.tolist(), strict=True)},
        "num": {name: int(num) for name, num in zip(_NAMES, counts.sum(axis=0).tolist(), strict=True)},
    }


def _counts(step: StepTime) -> tuple[int, ...]:
    return (1, step.num_llm_rows, step.num_blocks, step.num_commands)
