"""The loop to read first: fetch what is done -> what is most urgent -> launch an LLM step, an Euler step -> and again.

Single-threaded and without a clock of its own: `worker` drives it in a thread, tests by hand. It decides nothing
(scheduler) and computes nothing (pipeline); it has utterances move along (speaking) and turns failures into their end
events.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar, TypeVarTuple

import structlog

from voicegate.engine.audio.encoding import Encoders, LocalEncoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.admission import Admission
from voicegate.engine.core.arrivals import Answer, Arrivals
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.policy import AdvanceBatch, BeginBlocks, Decision, Limits, decide
from voicegate.engine.core.reading import Reading
from voicegate.engine.core.readings import Readings
from voicegate.engine.core.reception import Reception
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.speaking import Speaking
from voicegate.engine.core.stages import ReadyVoice, Stages, VoicePrompt
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.core.voice_shelf import VoiceShelf
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.interface import (
    INTERNAL_FAILURE,
    EngineStats,
    Failed,
    ListenerReport,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

_TOO_LONG = "a sentence of this utterance needs more memory than the server has; shorter ones need less"

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


class EngineCore:
    def __init__(
        self,
        config: EngineConfig,
        stages: Stages,
        clock: Callable[[], float],
        sink: Sink,
        *,
        encoders: Encoders | None = None,
        waker: Waker = NO_WAKER,
        on_gone: Callable[[UtteranceId], object] = lambda _: None,
    ) -> None:
        """`sink` takes events as they happen, from this thread and from those of `encoders` (None: none of its own).

        `waker` is told of work that is done beside this thread: step again when it wakes. `on_gone` is told, once, of
        every utterance that was submitted and is not known here any more; its last packets may still be on their way.
        """
        self._clock = clock
        self._sink = sink
        self._on_gone = on_gone
        encoders = encoders or LocalEncoders()
        self._reception = Reception(stages, encoders, sink, clock, max_clause_tokens=config.max_clause_tokens)
        self._pipeline = Pipeline(config, stages, waker=waker)
        self._limits = _limits_of(config, stages)
        self._voices = VoiceShelf(stages, self._voices_in_use)
        self._arrivals = Arrivals(stages, self._pipeline.token2wav, self._voices, self._fail_voiceless)
        self._readings = Readings(
            config, lookahead_tokens=stages.flow.lookahead_tokens, held_back_frames=stages.vocoder.held_back_frames
        )
        self._roster = Roster(config, self._limits, self._pipeline, self._readings, self._attempt)
        self._speaking = Speaking(self._pipeline, self._readings, clock, on_finished=self._forget)
        self._reading = Reading(self._roster, clock, self._read_bite)
        self._admission = Admission(
            config, self._pipeline, self._roster, self._attempt, bring_back=self._arrivals.bring_back
        )

    # --- commands: unknown or ended utterances are no-ops (interface.py) --------------------------------------

    def submit(self, request: UtteranceRequest, *, seed: int) -> None:
        """Start an utterance; what the interface promises to refuse was refused before."""
        listing = self._roster.new_listing()
        try:
            voice = self._voices[request.voice]
            self._roster.add(self._reception.open(listing, request, voice, seed=seed))
            self._voices.note_use(voice)
            if voice.flow_prompt.rendered is None:
                self._arrivals.bring_back(voice)
        except Exception:
            log.exception("utterance_not_opened", utterance=request.utterance_id)
            self._on_gone(request.utterance_id)
            self._sink([Failed(request.utterance_id, INTERNAL_FAILURE)])

    def push_text(self, utterance_id: UtteranceId, text: str) -> bool:
        """False: it is news to nobody before the next alarm."""
        utterance, now_s = self._roster.named(utterance_id), self._clock()
        if is_news := utterance is None or not self._roster.is_gathering(utterance):
            self._change_text(utterance, Utterance.push, text, now_s)
        else:
            self._attempt(utterance, utterance.push, text, now_s)
        return is_news

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        self._change_text(self._roster.named(utterance_id), Utterance.flush, flush_id, self._clock())

    def end_text(self, utterance_id: UtteranceId) -> None:
        self._change_text(self._roster.named(utterance_id), Utterance.end, self._clock())

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        self._change(self._roster.named(utterance_id), Utterance.note_listener, report, self._clock())

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None) -> None:
        self._change(self._roster.named(utterance_id), self._cancel, played_ms)

    def fail(self, utterance_id: UtteranceId, message: str) -> None:
        """`message` is for its client."""
        self._change(self._roster.named(utterance_id), self._fail, message)

    def prepare_voice(self, voice: Voice, answer: Answer) -> None:
        """`answer` has it, or is told why not, once its prompt is rendered, beside speech and in its pauses.

        `put_up_voice` or `discard_voice` must follow.
        """
        self._arrivals.add(voice, answer)

    def put_up_voice(self, ready: ReadyVoice) -> None:
        """From now on `submit` takes it, for one of the same name."""
        self._voices.put_up(ready)
        self._release_voices()

    def discard_voice(self, ready: ReadyVoice) -> None:
        self._voices.discard(ready)

    def refuse_voices(self, reason: str, voice: Voice | None = None) -> None:
        """This one, if it is not prepared yet; None: all such."""
        self._arrivals.refuse(reason, voice)

    def remove_voice(self, name: str) -> None:
        """Utterances that run keep it; submit none with it any more."""
        self._voices.remove(name)
        self._release_voices()

    def fail_all(self, message: str) -> None:
        for utterance in self._roster:
            self._attempt(utterance, self._fail, utterance, message)

    # --- the guard: one utterance's failure never touches another ---------------------------------------------

    def _attempt(self, utterance: Utterance, work: Callable[[*_Args], _Result], *args: *_Args) -> _Result | None:
        """All work for a single utterance is done here: what goes wrong in it ends that utterance and nothing else."""
        try:
            return work(*args)
        except Exception:
            log.exception("utterance_failed", utterance=utterance.utterance_id)
        if utterance in self._roster:
            self._attempt(utterance, self._fail, utterance, INTERNAL_FAILURE)
        return None

    def _attempt_together(
        self, clauses: Iterable[Clause], work: Callable[[*_Args], _Result], *args: *_Args
    ) -> _Result | None:
        """The same for a step that several utterances share: nobody knows whose fault it was."""
        try:
            return work(*args)
        except Exception:
            log.exception("shared_step_failed")
        for utterance in self._roster.of({clause.utterance_key for clause in clauses}):
            self._attempt(utterance, self._fail, utterance, INTERNAL_FAILURE)
        return None

    def _change(self, utterance: Utterance | None, work: Callable[[Utterance, *_Args], None], *args: *_Args) -> None:
        """Nothing is done for one that is not there (any more)."""
        if utterance is not None:
            utterance.listing.report()
            self._attempt(utterance, work, utterance, *args)

    def _change_text(
        self, utterance: Utterance | None, work: Callable[[Utterance, *_Args], None], *args: *_Args
    ) -> None:
        self._change(utterance, work, *args)
        if utterance is not None:
            self._roster.note_text(utterance, self._clock())

    # --- the loop ---------------------------------------------------------------------------------------------

    def step(self) -> Decision:
        """Fetch what is done and launch the most urgent work; says what that was, or when to come back."""
        while (planned := self._plan()) is None:
            self._make_room(self._clock())
        decision, has_prompt_step = planned
        self._launch(decision)
        has_prompt_step |= self._arrivals.step_beside(decision)
        self._fetch()
        return replace(decision, has_prompt_step=True) if has_prompt_step else decision

    def _plan(self) -> tuple[Decision, bool] | None:
        """What to launch, and whether a voice's step was launched already. None: as `_decide`."""
        self._reading.read(self._clock(), is_lacking=False)  # beside what the step before has launched
        self._fetch()
        now_s = self._clock()
        self._reading.read(now_s, is_lacking=True)
        for utterance in self._roster.stalled(now_s):
            self._change(utterance, self._speaking.read, Utterance.stall)
        for number, (utterance, clause) in enumerate(self._admission.starts(now_s)):
            start = partial(self._speaking.start, are_many=self._roster.would_be_many(num_more=number))
            self._change(utterance, start, clause)
        for utterance, clause in self._roster.readings(now_s):
            self._change(utterance, self._speaking.read_again, clause)
        has_prompt_step = self._arrivals.step_if_due()
        decision = self._decide(now_s)
        return None if decision is None else (decision, has_prompt_step)

    def _decide(self, now_s: float) -> Decision | None:
        """None: there are blocks, and nothing is under way that would make room for them."""
        intake = self._pipeline.intake
        if not (intake.takes_llm_step or intake.takes_flow_step):
            return Decision(wake_at_s=self._roster.next_alarm_s(now_s))
        due = self._roster.due(now_s)
        decision = decide(due, self._limits, intake)
        # What an LLM is at work on takes room, and makes none: while it goes on nobody would be heard.
        is_stuck = due.has_blocks and not (decision.holds_flow or self._pipeline.token2wav.is_busy)
        if is_stuck and (decision.is_idle or not due.has_blocks_of(intake.num_blocks)):
            return None
        if not decision.is_idle:
            return decision
        return Decision(wake_at_s=self._roster.next_alarm_s(now_s))

    def _launch(self, decision: Decision) -> None:
        if decision.llm is not None:
            self._launch_llm(decision.llm.keys)
        if isinstance(decision.flow, BeginBlocks):
            self._begin_blocks(decision.flow.keys)
        elif isinstance(decision.flow, AdvanceBatch):
            self._advance(decision.flow.batch)

    def _fetch(self) -> None:
        token2wav = self._pipeline.token2wav
        for clause, output in self._pipeline.fetch_tokens():
            if (utterance := self._roster.owner(clause)) is not None:
                self._attempt(utterance, self._take_output, utterance, clause, output)
        for clause, samples in token2wav.fetch_samples(self._attempt_together):
            self._change(self._roster.owner(clause), self._speaking.take_samples, clause, samples)

    def _take_output(self, utterance: Utterance, clause: Clause, output: SequenceOutput) -> None:
        if output.error is not None:
            log.warning("clause_failed", utterance=utterance.utterance_id, reason=output.error)
            self._fail(utterance, output.error)
            return
        self._speaking.take_output(utterance, clause, output)
        self._roster.note_tokens(clause)

    def _read_bite(self, utterance: Utterance) -> None:
        self._change_text(utterance, self._speaking.read, Utterance.read)

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a GPU, or an LLM that schedules itself, is at work on something whose result is not here."""
        return self._pipeline.is_busy

    @property
    def num_fetched(self) -> int:
        """What was fetched so far, of LLM, flow and vocoder."""
        return self._pipeline.num_fetched

    @property
    def rendering_pulse(self) -> int | None:
        """Of flow and vocoder alone: changes with all that they get done; None while they have nothing under way."""
        return self._pipeline.tally.num_rendered if self._pipeline.token2wav.is_busy else None

    @property
    def num_submitted(self) -> int:
        """Utterances so far."""
        return self._roster.num_listings

    @property
    def num_live(self) -> int:
        """Utterances that have not ended."""
        return self._roster.num_live

    @property
    def num_placed(self) -> int:
        """Without those at rest."""
        return self._roster.num_placed

    @property
    def num_welcome(self) -> int:
        """Newcomers that would not have to wait behind too many others for room in the models."""
        return self._admission.num_welcome

    @property
    def counters(self) -> Mapping[str, float]:
        """What the models did since the start: llm_steps, _rows, _seconds, _launches (of CUDA graphs).

        The same of flow, whose steps are Euler steps, and vocoder, which has calls.
        """
        return self._pipeline.counters

    @property
    def gauges(self) -> Mapping[str, float]:
        """How much of the models is taken. From any thread."""
        return {"waiting_clauses": self._roster.num_waiting, **self._pipeline.gauges}

    @property
    def batch_sizes(self) -> Mapping[str, Sequence[int]]:
        """By stage, as EngineStats has them. From any thread."""
        return self._pipeline.tally.batch_sizes

    def stats(self, counters: Mapping[str, float]) -> EngineStats:
        """From any thread, for which `counters` were read in the engine's."""
        return EngineStats(counters, self.gauges, self.batch_sizes)

    @property
    def unready_reason(self) -> None:
        """It always takes newcomers, if only to let them wait."""

    def wait(self) -> None:
        """Until there is something to fetch: for callers without a waker."""
        self._pipeline.wait()

    def run_until_idle(self) -> None:
        """Step until nothing is left to do now, waiting for what is done beside this thread."""
        while True:
            num_fetched = self.num_fetched
            is_idle = self.step().is_idle and not self._roster.has_readers
            if is_idle and self.num_fetched == num_fetched:  # else what it has fetched behind its decision is news
                if not self.is_busy:
                    return
                self.wait()

    # --- the models, for several at a time --------------------------------------------------------------------

    def _launch_llm(self, keys: Iterable[int]) -> None:
        if clauses := self._roster.passes(keys):
            for clause in self._attempt_together(clauses, self._pipeline.launch_llm, clauses) or ():
                clause.report()

    def _begin_blocks(self, keys: Iterable[int]) -> None:
        # A launch that failed just now has ended utterances; their blocks and batches went with them.
        utterances, token2wav = self._roster.of(keys), self._pipeline.token2wav
        clauses = [utterance.clauses[0] for utterance in utterances]
        if clauses:
            begin = partial(token2wav.begin, is_first=all(each.deadline_s is None for each in utterances))
            number = self._attempt_together(clauses, begin, clauses)
            if number is not None:
                self._advance(number)

    def _advance(self, number: int) -> None:
        if clauses := self._pipeline.token2wav.clauses_of(number):
            self._attempt_together(clauses, self._pipeline.token2wav.advance, number)

    def _make_room(self, now_s: float) -> None:
        """All of the flow's memory is held by clauses that need more of it to go on: the least urgent makes way."""
        if self._arrivals.make_way():  # before any of them a voice that is being taken up: its sender may try again
            return
        holders = self._roster.holders(now_s)
        if len(holders) > 1:
            log.warning("clause_set_aside", utterance=holders[-1].utterance_id, num_active=self._pipeline.num_active)
            self._change(holders[-1], self._speaking.set_aside)
            return
        # Whoever holds some alone has all there is; where nobody does, there is none.
        for utterance in holders or self._roster.of([view.key for view in self._roster.due(now_s)]):
            log.error("flow_memory_exhausted", utterance=utterance.utterance_id)
            self._change(utterance, self._fail, _TOO_LONG)

    # --- ends -------------------------------------------------------------------------------------------------

    def _cancel(self, utterance: Utterance, played_ms: int | None) -> None:
        utterance.cancel(played_ms)
        self._forget(utterance)

    def _fail(self, utterance: Utterance, message: str) -> None:
        self._strike_off(utterance)
        try:
            utterance.fail(message)
        finally:
            self._give_back(utterance)

    def _forget(self, utterance: Utterance) -> None:
        """Its end event has left, or will behind its last packet."""
        self._strike_off(utterance)
        self._give_back(utterance)

    def _strike_off(self, utterance: Utterance) -> None:
        self._roster.remove(utterance)
        self._on_gone(utterance.utterance_id)

    def _give_back(self, utterance: Utterance) -> None:
        """At once, all that it holds, whatever goes wrong with some of it."""
        self._voices.note_use(utterance.voice)
        with ExitStack() as stack:
            stack.callback(self._release_voices)
            for clause in utterance.clauses:
                stack.callback(self._pipeline.release, clause)

    def _voices_in_use(self) -> list[ReadyVoice]:
        """Of who has something to say; who has not waits for his voice again, where it goes meanwhile."""
        return [utterance.voice for utterance in self._roster if utterance.clauses]

    def _fail_voiceless(self, prompt: VoicePrompt, message: str) -> None:
        for utterance in self._roster:
            if utterance.voice.flow_prompt is prompt:
                self._attempt(utterance, self._fail, utterance, message)

    def _release_voices(self) -> None:
        self._voices.release_unused(utterance.voice for utterance in self._roster)
        self._arrivals.let_go(utterance.voice for utterance in self._roster)


def _limits_of(config: EngineConfig, stages: Stages) -> Limits:
    """`config`: resolved for the device."""
    guard_s = config.guard_ms / 1000
    return Limits(
        flow_batch=stages.flow.batch_size(config.max_flow_batch),
        calm_flow_batch=stages.flow.batch_size(max(config.max_flow_batch, config.max_calm_flow_batch)),
        guard_s=guard_s,
        # A CPU's blocks take no less where few have work.
        light_guard_s=min(guard_s, constants.LIGHT_GUARD_S) if stages.is_concurrent else guard_s,
        room_guard_s=config.room_guard_ms / 1000,
        is_concurrent=stages.is_concurrent,
        is_llm_apart=stages.is_llm_apart,
    )
