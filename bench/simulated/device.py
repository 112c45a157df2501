"""A GPU that only takes time: two lanes side by side on a clock of their own, with step times that were measured.

A step is slower while the other lane is at work. All numbers are of one H200 (bench/results): bfloat16, 300 positions
of context in the LLM, 150 to 450 frames in the flow.
"""

import math
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch

from voicegate.engine.device import lanes
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK

# By rows: ADR 0012's us with its tiles of 2026-11-23, a fifth more from 20 rows on, as of a trace of 400 live streams
# at 20 words a second, where a step had the device for itself (H200, a probe of that day: docs/adr/0025); up to 16 rows
# as since kernels begin before their inputs are there (ADR 0012). The same, by lines of readings that are fed in one
# pass with what decodes; so few that the weights take longer cost nothing.
_LLM_ROWS = (1, 8, 16, 20, 45, 128, 256, 400)
_LLM_MS = (0.46, 0.46, 0.58, 0.86, 0.98, 1.17, 1.56, 2.19)
_LLM_S_PER_LINE = 3.4e-6
_FREE_LINES = 40
# kernels-h200.json, flow: ten Euler steps by whole blocks; between the two contexts that were measured. Up to four
# blocks less by what ADR 0013's weights ahead took off since.
_BLOCKS = (1, 2, 4, 8, 12, 18, 24, 34, 42, 50, 62, 74, 84)
_BLOCKS_MS = (6.2, 8.4, 9.9, 13.0, 16.0, 22.2, 27.1, 36.4, 45.2, 51.0, 65.3, 75.1, 84.8)
# engine-h200.json, `stages`: calls of 1 to 46 rows.
_VOCODER_S, _VOCODER_S_PER_ROW = 0.33e-3, 0.11e-3
# From that trace, too: how much longer an Euler step took than in that table, in a load that draws 680 of 700 W, less
# the part that finer buckets took off since (docs/adr/0013).
_FLOW_IN_LOAD = 1.03
# From that trace, beside the other lane: an LLM step's loss by the blocks beside it, decodes alone and with readings;
# and an Euler step's loss beside either.
_BESIDE_BLOCKS = (1, 2, 6, 12, 34, 84)
_DECODE_SLOWDOWN = (1.45, 1.5, 1.85, 2.2, 2.6, 2.9)
_READING_SLOWDOWN = (1.2, 1.25, 1.45, 1.66, 1.9, 2.1)
_FLOW_SLOWDOWN_BY_DECODES = 1.4
_FLOW_SLOWDOWN_BY_READINGS = 1.65
# Decodes whose kernels begin early, likewise: they hold the device, and the flow pays (docs/adr/0013, 0012).
_EARLY_ROWS = 16
_EARLY_BESIDE_BLOCKS = (4, 8)
_EARLY_SLOWDOWN = (1.2, 1.32)
_FLOW_SLOWDOWN_BY_EARLY = (2.05, 1.7)


def llm_step_s(num_rows: int, num_prompt_lines: int) -> float:
    decode_s = float(np.interp(num_rows, _LLM_ROWS, _LLM_MS)) / 1000
    return decode_s + _LLM_S_PER_LINE * max(num_prompt_lines - _FREE_LINES, 0)


def is_early(num_rows: int, num_prompt_lines: int) -> bool:
    return num_rows + num_prompt_lines <= _EARLY_ROWS


def euler_step_s(num_frames: int) -> float:
    return _FLOW_IN_LOAD * float(np.interp(num_frames / FRAMES_PER_BLOCK, _BLOCKS, _BLOCKS_MS)) / 10_000


def vocoder_call_s(num_rows: int) -> float:
    return _VOCODER_S + _VOCODER_S_PER_ROW * num_rows


@dataclass(slots=True, eq=False)
class Mark:
    """Behind the work that its lane was given before; see engine.device.lanes."""

    lane: "Lane"
    reached_s: float = math.inf

    @property
    def is_reached(self) -> bool:
        return self.reached_s < math.inf

    def seconds_since(self, earlier: lanes.Mark) -> float:
        assert isinstance(earlier, Mark)
        return self.reached_s - earlier.reached_s

    def wait(self) -> None:
        raise RuntimeError("nobody waits on a simulated device")


@dataclass(slots=True)
class _Work:
    """Left to do, of a lane that has the device alone; `marks` are behind it."""

    left_s: float
    num_blocks: float  # of the flow
    is_reprefill: bool  # of the LLM
    is_early: bool  # of the LLM: decodes of few rows
    marks: list[Mark] = field(default_factory=list)


class Lane:
    """Implements engine.device.lanes.Lane. `busy_s`: in which it had work."""

    def __init__(self, device: "Device") -> None:
        self.busy_s = 0.0
        self.works: deque[_Work] = deque()
        self._device = device

    def launch(
        self, seconds: float, *, num_blocks: float = 0.0, is_reprefill: bool = False, is_early: bool = False
    ) -> None:
        self.works.append(_Work(seconds, num_blocks, is_reprefill, is_early))

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> Mark:
        mark = Mark(self)
        if self.works:
            self.works[-1].marks.append(mark)
        else:
            mark.reached_s = self._device.now_s
        return mark

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class Device:
    """A clock, and the lanes whose work it moves on."""

    def __init__(self, *, is_llm_apart: bool = False) -> None:
        """`is_llm_apart`: on a GPU of its own, where neither lane slows the other down."""
        self.now_s = 0.0
        self.is_llm_apart = is_llm_apart
        self.llm, self.token2wav = Lane(self), Lane(self)

    # --- what stand-ins ask of it (bench.standins.Costs) --------------------------------------------------------

    @property
    def llm_lane(self) -> Lane:
        return self.llm

    @property
    def token2wav_lane(self) -> Lane:
        return self.token2wav

    def llm_step(self, num_rows: int, num_lines: int) -> None:
        early = is_early(num_rows, num_lines)
        self.llm.launch(llm_step_s(num_rows, num_lines), is_reprefill=num_lines > 0, is_early=early)

    def euler_step(self, num_frames: int) -> None:
        self.token2wav.launch(euler_step_s(num_frames), num_blocks=num_frames / FRAMES_PER_BLOCK)

    def vocoder_call(self, num_rows: int) -> None:
        self.token2wav.launch(vocoder_call_s(num_rows))

    # --- its time ---------------------------------------------------------------------------------------------

    @property
    def next_mark_s(self) -> float:
        """When something that is under way will be done, if nothing else is launched."""
        return min((each.works[0].left_s * slow + self.now_s for each, slow in self._running()), default=math.inf)

    def run(self, until_s: float) -> None:
        while self.now_s < until_s:
            running = list(self._running())
            end_s = min(self.next_mark_s, until_s)
            for lane, slow in running:
                work = lane.works[0]
                work.left_s -= (end_s - self.now_s) / slow
                lane.busy_s += end_s - self.now_s
            self.now_s = end_s
            for lane, _ in running:
                if lane.works[0].left_s <= 1e-9:
                    for mark in lane.works.popleft().marks:
                        mark.reached_s = end_s

    def _running(self) -> Iterator[tuple[Lane, float]]:
        """Lanes at work, and how much longer their work takes than alone."""
        llm, flow = self.llm.works, self.token2wav.works
        of_llm, of_flow = 1.0, 1.0
        if llm and flow and not self.is_llm_apart:
            of_llm, of_flow = _slowdowns(llm[0], flow[0].num_blocks)
        if llm:
            yield self.llm, of_llm
        if flow:
            yield self.token2wav, of_flow


def _slowdowns(llm: _Work, num_blocks: float) -> tuple[float, float]:
    """Slowdowns of the LLM's work and of the flow's, side by side."""
    if llm.is_reprefill:
        return float(np.interp(num_blocks, _BESIDE_BLOCKS, _READING_SLOWDOWN)), _FLOW_SLOWDOWN_BY_READINGS
    if llm.is_early:
        early = (
            np.interp(num_blocks, _EARLY_BESIDE_BLOCKS, each) for each in (_EARLY_SLOWDOWN, _FLOW_SLOWDOWN_BY_EARLY)
        )
        of_llm, of_flow = map(float, early)
        return of_llm, of_flow
    return float(np.interp(num_blocks, _BESIDE_BLOCKS, _DECODE_SLOWDOWN)), _FLOW_SLOWDOWN_BY_DECODES


def host_fetch_s(num_llm_rows: int) -> float:
    """Time of the engine's thread, from an LLM step's end until the next one may be launched: from that trace, too."""
    return 0.1e-3 + 0.014e-3 * num_llm_rows if num_llm_rows else 0.0


def host_step_s(*, num_llm_rows: int, num_blocks: int, num_commands: int, num_heard: int) -> float:
    """The rest of what the engine's thread takes: `stages.host` of engine-h200.json and `host_us` of
    kernels-h200.json, where nothing else runs in its process; a command is a client's. `num_heard`: samples of so many
    blocks are given to encoders and their words told (docs/adr/0011 has what that takes)."""
    llm_s = 0.1e-3 + 0.018e-3 * num_llm_rows if num_llm_rows else 0.0
    flow_s = 0.1e-3 + 0.02e-3 * num_blocks if num_blocks else 0.0
    return 0.14e-3 + llm_s + flow_s + 0.1e-3 * num_commands + 0.15e-3 * num_heard
