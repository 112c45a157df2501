"""Several token2wavs behind one LLM: a whole EngineCore for each, and every utterance in one of them.

So room, urgency, batches and failures are a token2wav's own, as with one. Single-threaded, as they are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.disaggregated.shared_llm import SharedLlm
from voicegate.engine.interface import EngineError, ListenerReport, UtteranceId, UtteranceRequest
from voicegate.engine.loop.core import EngineCore
from voicegate.engine.loop.stages import ReadyVoice, Stages
from voicegate.engine.loop.voice_shelf import Answer
from voicegate.engine.policy.placement import Load, choose
from voicegate.engine.policy.scheduler import Decision
from voicegate.engine.voices.voice import Voice


@dataclass(slots=True, eq=False)
class _Arrival:
    """A voice on its way to all cores."""

    answer: Answer
    outcomes: dict[int, ReadyVoice | EngineError]  # by core


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
        """`all_stages`: a token2wav's each, with the same LLM and one iterator of its sequences' names."""
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

    # --- commands: for the core that has the utterance; one that nobody has (any more) is a no-op -------------------

    def submit(self, request: UtteranceRequest, *, seed: int) -> None:
        """Where there is most room."""
        loads = [_load(core, self._max_active) for core in self.cores]
        number = choose(enumerate(loads))
        if number is None:  # it has come for room that was there a moment ago
            number = choose(enumerate(replace(load, room=1) for load in loads))
        assert number is not None, "there is a core"
        self._owners[request.utterance_id] = self.cores[number]
        self.cores[number].submit(request, seed=seed)

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

    def put_up_voice(self, ready: ReadyVoice) -> None:
        for core, each in zip(self.cores, self._prepared.pop(id(ready)), strict=True):
            core.put_up_voice(each)

    def discard_voice(self, ready: ReadyVoice) -> None:
        for core, each in zip(self.cores, self._prepared.pop(id(ready)), strict=True):
            core.discard_voice(each)

    def remove_voice(self, name: str) -> None:
        for core in self.cores:
            core.remove_voice(name)

    # --- the loop -------------------------------------------------------------------------------------------------

    def step(self) -> Decision:
        """A step of every core, and one of the LLM for all of them. Raises LlmDied."""
        self._llm.collect()
        decisions = [core.step() for core in self.cores]
        self._llm.launch()
        busy = next((decision for decision in decisions if not decision.is_idle), None)
        if busy is not None:
            return busy
        return Decision(
            wake_at_s=min((each.wake_at_s for each in decisions if each.wake_at_s is not None), default=None)
        )

    @property
    def is_busy(self) -> bool:
        return any(core.is_busy for core in self.cores)

    @property
    def num_fetched(self) -> int:
        return sum(core.num_fetched for core in self.cores)

    @property
    def num_submitted(self) -> int:
        return sum(core.num_submitted for core in self.cores)

    @property
    def num_welcome(self) -> int:
        return sum(core.num_welcome for core in self.cores)

    @property
    def counters(self) -> Mapping[str, float]:
        return {**_added(core.counters for core in self.cores), **self._llm.counters}

    @property
    def gauges(self) -> Mapping[str, float]:
        return _added(core.gauges for core in self.cores)

    @property
    def batch_sizes(self) -> Mapping[str, Sequence[int]]:
        """Of the LLM, those of all cores' sequences together."""
        of_cores = [core.batch_sizes for core in self.cores]
        added = {
            stage: [sum(column) for column in zip(*(each[stage] for each in of_cores), strict=True)]
            for stage in of_cores[0]
        }
        return {**added, "llm": self._llm.tally.batch_sizes["llm"]}


def _load(core: EngineCore, max_active: int) -> Load:
    gauges = core.gauges
    return Load(
        room=core.num_welcome,
        num_live=core.num_live,
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
