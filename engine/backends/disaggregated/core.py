"""Several token2wavs behind one LLM: a whole EngineCore for each, and every utterance in one of them.

So room, urgency, batches and failures are a token2wav's own, as with one, and a device that hangs is that of its own
utterances, unless it is the LLM's. Single-threaded, as they are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.backends.disaggregated.config import device_names
from voicegate.engine.backends.disaggregated.shared_llm import SharedLlm
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.arrivals import Answer
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.policy import Decision
from voicegate.engine.core.stages import ReadyVoice, Stages
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.interface import (
    EngineError,
    EngineStats,
    ListenerReport,
    Overloaded,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.placement import Load, choose
from voicegate.engine.pulse import LOOK_S, PulseWatch
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

# The client's message; the log has the rest.
_HANGS: Final = "the device that spoke this hangs; try again"


@dataclass(slots=True, eq=False)
class _Arrival:
    """A voice on its way to all cores."""

    answer: Answer
    outcomes: dict[int, ReadyVoice | EngineError]  # by core


class WatchedDevice:
    """One device, and whether it hangs: it is told what the device got done, and the time."""

    def __init__(self, name: str, *, patience_s: float) -> None:
        self.name = name
        self.hangs = False
        self.num_hangs = 0  # so far
        self.num_utterances_lost = 0
        self._patience_s = patience_s
        self._watch = PulseWatch(patience_s)

    def look(self, pulse: int | None, now_s: float) -> bool:
        """Several times a second; True: since now it hangs. `pulse` as PulseWatch has it."""
        hung, self.hangs = self.hangs, self._watch.look(pulse, now_s)
        if self.hangs and not hung:
            self.num_hangs += 1
            log.error("device_hangs", device=self.name, limit_s=self._patience_s)
        elif hung and not self.hangs:
            log.warning("device_goes_on", device=self.name)
        return self.hangs and not hung


class DisaggregatedCore:
    """Implements DrivenCore."""

    def __init__(
        self,
        config: EngineConfig,
        all_stages: Sequence[Stages],
        clock: Callable[[], float],
        sink: Sink,
        *,
        encoders: Encoders | None = None,
        waker: Waker = NO_WAKER,
    ) -> None:
        """`all_stages`: of each token2wav that `config` names, with the same LLM and one iterator of its sequences'
        names."""
        self._clock = clock
        self._max_active = config.max_active_clauses
        self._llm = SharedLlm(all_stages[0].llm, num_shares=len(all_stages))
        self._owners: dict[UtteranceId, EngineCore] = {}  # of the utterances that live
        self.cores = tuple(
            EngineCore(
                config,
                replace(stages, llm=share),
                clock,
                sink,
                encoders=encoders,
                waker=waker,
                on_gone=self._owners.pop,
            )
            for stages, share in zip(all_stages, self._llm.shares, strict=True)
        )
        self._prepared: dict[int, list[ReadyVoice]] = {}  # voices that nobody has put up yet, by id of the first core's
        devices = [WatchedDevice(name, patience_s=config.device_patience_s) for name in device_names(config)]
        self._llm_device, self._devices = devices[0], tuple(devices[1:])  # these as `cores`
        self._next_look_s = 0.0
        self._at: WatchedDevice | None = None  # that this thread may be waiting for

    # --- commands: for the core that has the utterance; one that nobody has (any more) is a no-op -------------------

    def submit(self, request: UtteranceRequest, *, seed: int) -> None:
        """Where there is most room, and nowhere that hangs."""
        able = list(self._able)
        loads = [_load(core, self._max_active) for core in able]
        number = choose(enumerate(loads))
        if number is None:  # it has come for room that was there a moment ago
            number = choose(enumerate(replace(load, room=1) for load in loads))
        core = self.cores[0] if number is None else able[number]
        self._owners[request.utterance_id] = core
        core.submit(request, seed=seed)
        if number is None:  # or before all of them were known to hang
            core.fail(request.utterance_id, _HANGS)

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        if (core := self._owners.get(utterance_id)) is not None:
            core.push_text(utterance_id, text)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        if (core := self._owners.get(utterance_id)) is not None:
            core.flush_text(utterance_id, flush_id)

    def end_text(self, utterance_id: UtteranceId) -> None:
        if (core := self._owners.get(utterance_id)) is not None:
            core.end_text(utterance_id)

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        if (core := self._owners.get(utterance_id)) is not None:
            core.note_listener(utterance_id, report)

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None) -> None:
        if (core := self._owners.get(utterance_id)) is not None:
            core.cancel(utterance_id, played_ms)

    def fail(self, utterance_id: UtteranceId, message: str) -> None:
        if (core := self._owners.get(utterance_id)) is not None:
            core.fail(utterance_id, message)

    def fail_all(self, message: str) -> None:
        for core in self.cores:
            core.fail_all(message)

    # --- voices: on all token2wavs, or on none --------------------------------------------------------------------

    def prepare_voice(self, voice: Voice, answer: Answer) -> None:
        """While a device hangs none is taken up: it would not be there before that goes on."""
        if hanging := [device for device in self._devices if device.hangs]:
            answer(Overloaded(_no_voices(hanging[0])))
            return
        arrival = _Arrival(answer, {})
        for number, core in enumerate(self.cores):
            core.prepare_voice(voice, partial(self._note_outcome, arrival, number))

    def _note_outcome(self, arrival: _Arrival, number: int, outcome: ReadyVoice | EngineError) -> None:
        arrival.outcomes[number] = outcome
        if len(arrival.outcomes) < len(self.cores):
            return
        outcomes = [arrival.outcomes[each] for each in range(len(self.cores))]
        prepared = [each for each in outcomes if isinstance(each, ReadyVoice)]
        if len(prepared) == len(self.cores):
            self._prepared[id(prepared[0])] = prepared
            arrival.answer(prepared[0])
            return
        for core, each in zip(self.cores, outcomes, strict=True):
            if isinstance(each, ReadyVoice):
                core.discard_voice(each)
        arrival.answer(next(each for each in outcomes if isinstance(each, EngineError)))

    def refuse_voices(self, reason: str, voice: Voice | None = None) -> None:
        """Where one core has it prepared already, that is discarded with the last core's refusal."""
        for core in self.cores:
            core.refuse_voices(reason, voice)

    def install_voice(self, ready: ReadyVoice) -> None:
        for core, each in zip(self.cores, self._prepared.pop(id(ready)), strict=True):
            core.install_voice(each)

    def discard_voice(self, ready: ReadyVoice) -> None:
        for core, each in zip(self.cores, self._prepared.pop(id(ready)), strict=True):
            core.discard_voice(each)

    def remove_voice(self, name: str) -> None:
        for core in self.cores:
            core.remove_voice(name)

    # --- the loop -------------------------------------------------------------------------------------------------

    def step(self) -> Decision:
        """A step of every core, and one of the LLM for all of them. Raises LlmDied."""
        self._at = self._llm_device
        self._llm.collect()
        decisions = []
        for core, device in zip(self.cores, self._devices, strict=True):
            self._at = device
            decisions.append(core.step())
        self._at = self._llm_device
        self._llm.launch()
        self._at = None
        now_s = self._clock()
        if now_s >= self._next_look_s:
            self._look(now_s)
        busy = next((decision for decision in decisions if not decision.is_idle), None)
        if busy is not None:
            return busy
        alarms = [each.wake_at_s for each in decisions if each.wake_at_s is not None]
        if self._is_to_look_again:
            alarms.append(self._next_look_s)
        return Decision(wake_at_s=min(alarms, default=None))

    def _look(self, now_s: float) -> None:
        """Whether devices hang. What the LLM's had to do waits: it may go on, and nobody could speak elsewhere."""
        self._next_look_s = now_s + LOOK_S
        self._llm_device.look(self._llm.pulse, now_s)
        for core, device in zip(self.cores, self._devices, strict=True):
            if device.look(core.rendering_pulse, now_s):
                device.num_utterances_lost += core.num_live
                core.refuse_voices(_no_voices(device))
                core.fail_all(_HANGS)

    @property
    def _able(self) -> Iterable[EngineCore]:
        """Those that do not hang."""
        return (core for core, device in zip(self.cores, self._devices, strict=True) if not device.hangs)

    @property
    def _is_to_look_again(self) -> bool:
        """Something is under way on a device, or was when it was said to hang."""
        pulses = (self._llm.pulse, *(core.rendering_pulse for core in self.cores))
        return any(pulse is not None for pulse in pulses) or any(
            device.hangs for device in (self._llm_device, *self._devices)
        )

    @property
    def is_busy(self) -> bool:
        """Whether the LLM is busy, which all need; or all token2wavs hang. Where one does, this looks after it, and
        others go on."""
        return self._llm.pulse is not None or self.unready_reason is not None

    @property
    def num_fetched(self) -> int:
        return self._llm.num_fetched

    @property
    def num_submitted(self) -> int:
        return sum(core.num_submitted for core in self.cores)

    @property
    def num_welcome(self) -> int:
        return sum(core.num_welcome for core in self._able)

    @property
    def unready_reason(self) -> str | None:
        if not all(device.hangs for device in self._devices):
            return None
        return f"all devices that could speak hang: {', '.join(device.name for device in self._devices)}"

    # --- what it tells, from any thread ---------------------------------------------------------------------------

    @property
    def counters(self) -> Mapping[str, float]:
        return {**_added(core.counters for core in self.cores), **self._llm.counters}

    @property
    def gauges(self) -> Mapping[str, float]:
        return _added(core.gauges for core in self.cores)

    @property
    def batch_sizes(self) -> Mapping[str, Sequence[int]]:
        """Batch sizes of the LLM are those of all cores' sequences together."""
        of_cores = [core.batch_sizes for core in self.cores]
        added = {
            stage: [sum(column) for column in zip(*(each[stage] for each in of_cores), strict=True)]
            for stage in of_cores[0]
        }
        return {**added, "llm": self._llm.tally.batch_sizes["llm"]}

    def stats(self, counters: Mapping[str, float]) -> EngineStats:
        """The sums, and each token2wav's own under the names that engine processes' have."""
        parts = list(zip(self.cores, self._devices, strict=True))
        at = self._at or (self._llm_device if self._llm.pulse is not None else None)
        return EngineStats(
            counters,
            self.gauges,
            self.batch_sizes,
            {device.name: _own_stats(core, device) for core, device in parts},
            {device.name: device.hangs for device in (self._llm_device, *self._devices)},
            at.name if at is not None else "",
        )


def _no_voices(device: WatchedDevice) -> str:
    return f"{device.name} hangs, and a voice is on all devices or on none; try again when it goes on"


def _own_stats(core: EngineCore, device: WatchedDevice) -> EngineStats:
    lost = {"replicas_lost": device.num_hangs, "replica_utterances_lost": device.num_utterances_lost}
    now = {
        "replica_ready": 0 if device.hangs else 1,
        "replica_utterances": core.num_placed,
        "replica_room": 0 if device.hangs else core.num_welcome,
    }
    batch_sizes = {stage: sizes for stage, sizes in core.batch_sizes.items() if stage != "llm"}  # all cores' together
    return EngineStats({**core.counters, **lost}, {**core.gauges, **now}, batch_sizes)


def _load(core: EngineCore, max_active: int) -> Load:
    gauges = core.gauges
    return Load(
        room=core.num_welcome,
        num_placed=core.num_placed,
        max_live=max_active,
        num_waiting=round(gauges["waiting_clauses"]),
        num_blocks_free=gauges["free_flow_blocks"] - gauges["reserved_flow_blocks"],
        max_blocks=gauges["max_flow_blocks"],
    )


def _added(of_cores: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for each in of_cores:
        for name, number in each.items():
            total[name] += number
    return total
