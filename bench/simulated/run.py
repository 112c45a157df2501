"""The real engine core under a load of the benches, on the simulated device's clock; and what its listeners had."""

import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

from voicegate.bench.simulated.device import Device, host_fetch_s, host_step_s
from voicegate.bench.simulated.encoders import SilentEncoders
from voicegate.bench.simulated.host_time import HostTime, StepTime
from voicegate.bench.simulated.models import Simulated
from voicegate.clients.bench.plan import Turn
from voicegate.clients.bench.schedule import Schedule
from voicegate.clients.bench.stats import summary
from voicegate.clients.python.timeline import Arrival, play
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.policy import Decision
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Codec,
    EngineEvent,
    Failed,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)

# Socket, gateway and encoder: `alone:whole` of socket-h200.json above `first-audio` of engine-h200.json.
_WIRE_S: Final = 0.002
# Between the turns of a visit of several: what is left of the one before is cancelled.
_TURN_S: Final = 1.5
_PREBUFFER_MS: Final = 80


@dataclass(slots=True)
class Listener:
    begun_s: float
    words_per_s: float | None  # of its writer; None: text given whole
    arrivals: list[Arrival] = field(default_factory=list)
    num_samples: int = 0
    failure: str | None = None


class Run:
    def __init__(self, config: EngineConfig, device: Device, simulated: Simulated, *, host_slowdown: float) -> None:
        """`host_slowdown`: how much longer the engine's thread takes than where it has its process for itself."""
        self.device = device
        self.simulated = simulated
        self.host_s = 0.0
        self.listeners: dict[UtteranceId, Listener] = {}
        self.host_time = HostTime()
        self.core = EngineCore(config, simulated.stages, lambda: device.now_s, self._take, encoders=SilentEncoders())
        self._host_slowdown = host_slowdown
        # Commands of clients: when, in which order, what.
        self._commands: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._num_heard = 0  # blocks whose samples were given out in this step

    # --- what clients do --------------------------------------------------------------------------------------

    def plan(self, schedule: Schedule) -> None:
        numbers = count()
        for visit in schedule.visits:
            for index, turn in enumerate(visit.turns):
                number = next(numbers)
                due_s = visit.due_s + index * _TURN_S
                self._write(UtteranceId(str(number)), turn, due_s)
                if index + 1 < len(visit.turns):
                    self._at(due_s + _TURN_S, partial(self.core.cancel, UtteranceId(str(number)), None))

    def _write(self, utterance_id: UtteranceId, turn: Turn, due_s: float) -> None:
        assert turn.voice is not None, "a schedule without voices"
        request = UtteranceRequest(utterance_id, turn.voice, AudioFormat(Codec.PCM_S16LE), SpeakingMode.INCREMENTAL)
        self._at(due_s, partial(self._open, request, turn.words_per_s))
        for piece in turn.pieces:
            self._at(due_s + piece.at_s, partial(self.core.push_text, utterance_id, piece.text))
        self._at(due_s + turn.writing_s, partial(self.core.end_text, utterance_id))

    def _at(self, at_s: float, command: Callable[[], object]) -> None:
        heapq.heappush(self._commands, (at_s, next(self._numbers), command))

    def _open(self, request: UtteranceRequest, words_per_s: float | None) -> None:
        self.listeners[request.utterance_id] = Listener(self.device.now_s, words_per_s)
        self.core.submit(request, seed=0)

    # --- the engine's thread ----------------------------------------------------------------------------------

    def run(self, until_s: float) -> None:
        while self.device.now_s < until_s:
            self._fetch()
            num_commands, begun_s = 0, time.thread_time()
            while self._commands and self._commands[0][0] <= self.device.now_s:
                heapq.heappop(self._commands)[2]()
                num_commands += 1
            decision = self.core.step()
            mark_s = self.device.next_mark_s
            self._spend(decision, num_commands, time.thread_time() - begun_s)
            # Work that ended meanwhile was not done when the core looked: a watcher wakes the engine's thread for it.
            if decision.is_idle and mark_s > self.device.now_s:
                self._sleep(decision.wake_at_s, until_s)

    def _fetch(self) -> None:
        """Work before a launch, while the device goes on: the core takes no time of this clock."""
        fetch_s = self._host_slowdown * host_fetch_s(self.simulated.llm.num_done_rows)
        self.host_s += fetch_s
        self.device.run(self.device.now_s + fetch_s)

    def _spend(self, decision: Decision, num_commands: int, cpu_s: float) -> None:
        """The device goes on meanwhile: for what the step was measured to take beside a GPU, not for `cpu_s`."""
        num_blocks = len(decision.begins) or decision.advances is not None
        num_llm_rows = self.simulated.llm.num_last_rows if decision.llm else 0
        self.host_time.took(StepTime(cpu_s, num_llm_rows, num_blocks, num_commands))
        num_heard, self._num_heard = self._num_heard, 0
        step_s = host_step_s(
            num_llm_rows=num_llm_rows, num_blocks=num_blocks, num_commands=num_commands, num_heard=num_heard
        )
        self.host_s += step_s * self._host_slowdown
        self.device.run(self.device.now_s + step_s * self._host_slowdown)

    def _sleep(self, wake_at_s: float | None, until_s: float) -> None:
        command_s = self._commands[0][0] if self._commands else math.inf
        wake_s = min(self.device.next_mark_s, command_s, math.inf if wake_at_s is None else wake_at_s)
        self.device.run(min(max(wake_s, self.device.now_s), until_s))

    def _take(self, events: Sequence[EngineEvent]) -> None:
        for event in events:
            self._num_heard += isinstance(event, AudioReady)
            listener = self.listeners.get(event.utterance_id)
            if listener is None:
                continue
            if isinstance(event, AudioReady):
                num_samples = sum(map(len, event.packets)) // 2
                pts_48k, duration_48k = (n * units.OPUS_CLOCK_PER_SAMPLE for n in (listener.num_samples, num_samples))
                listener.arrivals.append(Arrival(self.device.now_s + _WIRE_S, pts_48k, duration_48k))
                listener.num_samples += num_samples
            elif isinstance(event, Failed):
                listener.failure = event.message


def figures(run: Run, window_s: tuple[float, float]) -> dict[str, Any]:
    """Figures of the turns that began in the window, and of the whole run. Raises ValueError where no speech was
    heard."""
    begin_s, end_s = window_s
    begun = [each for each in run.listeners.values() if begin_s <= each.begun_s <= end_s]
    heard = [each for each in begun if each.arrivals]
    if not heard:
        raise ValueError("nobody was heard in the time that is measured")
    writers = sorted({each.words_per_s for each in heard}, key=lambda pace: pace or 0.0)
    counters, run_s, llm = run.core.counters, run.device.now_s, run.simulated.llm
    return {
        "num_unheard": len(begun) - len(heard),
        "num_failed": sum(each.failure is not None for each in run.listeners.values()),
        **_heard(heard),
        "by_writer": {
            "whole" if pace is None else f"{pace:g}": _heard([each for each in heard if each.words_per_s == pace])
            for pace in (writers if len(writers) > 1 else ())
        },
        "llm": {
            "share_of_time": round(run.device.llm.busy_s / run_s, 3),
            "steps_per_s": round(counters["llm_steps"] / run_s, 1),
            "rows_per_step": round(counters["llm_rows"] / max(counters["llm_steps"], 1), 2),
            "reprefills_per_s": round(llm.num_reprefills / run_s, 1),
            "prompt_lines_per_s": round(llm.num_prompt_lines / run_s),
        },
        "flow": {
            "share_of_time": round(run.device.token2wav.busy_s / run_s, 3),
            "steps_per_s": round(counters["flow_steps"] / run_s, 1),
            "rows_per_step": round(counters["flow_rows"] / max(counters["flow_steps"], 1), 2),
        },
        "host": {"share_of_time": round(run.host_s / run_s, 3)},
    }


def _heard(listeners: Sequence[Listener]) -> dict[str, Any]:
    """Listeners that were given some audio, at least one."""
    gaps_ms = [1000 * play(each.arrivals, 0).underruns.worst_s for each in listeners]
    buffered_ms = [1000 * play(each.arrivals, _PREBUFFER_MS).underruns.worst_s for each in listeners]
    return {
        "num": len(listeners),
        "first_audio_ms": summary([1000 * (each.arrivals[0].arrived_s - each.begun_s) for each in listeners]),
        **{f"c{limit}": round(sum(gap <= limit for gap in gaps_ms) / len(gaps_ms), 4) for limit in (50, 100)},
        "longest_gap_ms": round(max(buffered_ms), 1),
    }
