"""The loop to read first: fetch what is done -> what is most urgent -> launch an LLM step, an Euler step -> and again.

Single-threaded and without a clock of its own: `worker` drives it in a thread, tests by hand. It decides nothing
(policy) and computes nothing (pipeline); it has utterances move along (speaking) and turns failures into their end
events.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import structlog

from voicegate.engine.audio.encoding import Encoders, LocalEncoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.arrivals import Answer, Arrivals
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.growth import BlockTime
from voicegate.engine.core.guard import Guard
from voicegate.engine.core.look import Look
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.policy import Decision, Limits, decide
from voicegate.engine.core.reception import Reception
from voicegate.engine.core.reprefills import Reprefills
from voicegate.engine.core.room import Room
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
        block_time: BlockTime | None = None,
    ) -> None:
        """`sink` takes events as they happen, from this thread and from those of `encoders` (None: none of its own).

        `waker` is told of work that is done beside this thread: step again when it wakes. `on_gone` is told once of
        each submitted utterance that is not known here any more. Its last packets may still be on their way.
        `block_time`: what blocks took before (load/rehearsal.py).
        """
        self._clock = clock
        self._sink = sink
        self._on_gone = on_gone
        encoders = encoders or LocalEncoders()
        self._reception = Reception(stages, encoders, sink, clock, max_clause_tokens=config.max_clause_tokens)
        changed = set[int]()
        self._pipeline = Pipeline(config, stages, changed, waker=waker)
        self._limits = _limits_of(config, stages)
        self.num_submitted = 0  # utterances so far
        self._voices = VoiceShelf(stages, lambda: self._room.voices_in_use)
        self._arrivals = Arrivals(stages, self._pipeline.token2wav, self._voices, self._fail_voiceless)
        self._reprefills = Reprefills(
            config,
            lookahead_tokens=stages.flow.lookahead_tokens,
            held_back_frames=stages.vocoder.held_back_frames,
            block_time=block_time,
        )
        self._guarding = partial(Guard, self._fail_all_of)
        self._roster = Roster(Look(config, self._pipeline, self._reprefills), self._limits, self._guarding, changed)
        self._speaking = Speaking(self._pipeline, self._reprefills, clock, on_finished=self._forget)
        self._room = Room(
            config,
            self._pipeline,
            self._roster,
            self._speaking,
            self._arrivals,
            self._voices,
            self._guarding,
            self._fail,
        )

    # --- commands: unknown or ended utterances are no-ops (interface.py) --------------------------------------

    def submit(self, request: UtteranceRequest, *, seed: int) -> None:
        """Start an utterance; what the interface promises to refuse was refused before."""
        key, self.num_submitted = self.num_submitted, self.num_submitted + 1
        try:
            voice = self._voices[request.voice]
            self._roster.add(self._reception.open(key, request, voice, seed=seed))
            self._voices.note_use(voice)
            if voice.flow_prompt.rendered is None:
                self._arrivals.bring_back(voice)
        except Exception:
            log.exception("utterance_not_opened", utterance=request.utterance_id)
            self._on_gone(request.utterance_id)
            self._sink([Failed(request.utterance_id, INTERNAL_FAILURE)])

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        if (utterance := self._roster.by_id.get(utterance_id)) is not None:
            with self._changing(utterance):
                utterance.push(text, self._clock())
                self._roster.note_text(utterance)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        if (utterance := self._roster.by_id.get(utterance_id)) is not None:
            with self._changing(utterance):
                utterance.flush(flush_id, self._clock())
                self._roster.note_text(utterance)

    def end_text(self, utterance_id: UtteranceId) -> None:
        if (utterance := self._roster.by_id.get(utterance_id)) is not None:
            with self._changing(utterance):
                utterance.end(self._clock())
                self._roster.note_text(utterance)

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        if (utterance := self._roster.by_id.get(utterance_id)) is not None:
            with self._changing(utterance):
                utterance.note_listener(report, self._clock())

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None) -> None:
        if (utterance := self._roster.by_id.get(utterance_id)) is not None:
            with self._changing(utterance):
                utterance.cancel(played_ms)
                self._forget(utterance)

    def fail(self, utterance_id: UtteranceId, message: str) -> None:
        """`message` is for its client."""
        if (utterance := self._roster.by_id.get(utterance_id)) is not None:
            self._fail(utterance, message)

    def prepare_voice(self, voice: Voice, answer: Answer) -> None:
        """`answer` has it, or is told why not, once its prompt is rendered, beside speech and in its pauses.

        `install_voice` or `discard_voice` must follow.
        """
        self._arrivals.add(voice, answer)

    def install_voice(self, ready: ReadyVoice) -> None:
        """From now on `submit` takes it, for one of the same name."""
        self._voices.install(ready)
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
            self._fail(utterance, message)

    # --- the loop ---------------------------------------------------------------------------------------------

    def step(self) -> Decision:
        """Fetch what is done and launch the most urgent work; says what that was, or when to come back."""
        num_prompt_steps = self._arrivals.num_steps
        while (decision := self._next()).lacks_room:
            self._room.make(self._clock())
        self._launch(decision)
        self._arrivals.step_beside(decision)
        self._fetch()
        has_prompt_step = self._arrivals.num_steps > num_prompt_steps
        return replace(decision, has_prompt_step=True) if has_prompt_step else decision

    def _next(self) -> Decision:
        """The decision, after what goes before it: texts are read, results fetched, room is given out."""
        roster = self._roster
        self._read_texts(self._clock(), is_lacking=False)  # beside what the step before has launched
        self._fetch()
        now_s = self._clock()
        self._read_texts(now_s, is_lacking=True)
        roster.look(now_s)
        for utterance in list(roster.stalled.values()):
            with self._changing(utterance):
                utterance.stall(self._clock())
                self._speaking.take_text(utterance)
        roster.look(now_s)
        self._room.give_out(now_s)
        roster.look(now_s)
        for clause in list(roster.again.values()):
            with self._changing(utterance := roster.utterances[clause.key]):
                self._speaking.read_again(utterance, clause)
        self._arrivals.step_if_due()
        roster.look(now_s)
        intake = self._pipeline.intake
        if not (intake.takes_llm_step or intake.takes_flow_step):
            return Decision(wake_at_s=roster.next_alarm_s(now_s))
        roster.note_load()
        roster.look(now_s)
        decision = decide(roster.due, roster.limits, intake, roster.background)
        is_to_wait = decision.is_idle and not decision.lacks_room
        return Decision(wake_at_s=roster.next_alarm_s(now_s)) if is_to_wait else decision

    def _read_texts(self, now_s: float, *, is_lacking: bool) -> None:
        """Reads texts whose speech is needed soon, in turn and for a moment at most: the others' speech goes on.

        `is_lacking`: of those that have nothing for the LLM to read, else of the others.
        """
        spent_s = 0.0
        while self._roster.readers and (readers := self._roster.next_readers(now_s, is_lacking=is_lacking)):
            for utterance in readers:
                feed = utterance.feed
                for _ in range(constants.FIRST_BITES if is_lacking else 1):
                    begun_s = self._clock()
                    with self._changing(utterance):
                        utterance.read(begun_s)
                        self._speaking.take_text(utterance)
                        self._roster.note_text(utterance)
                    spent_s += self._clock() - begun_s
                    is_quick = not utterance.has_begun and utterance.num_vain_bites < constants.FIRST_BITES
                    if spent_s > (constants.FIRST_READING_S if is_quick else constants.READING_S):
                        return
                    if utterance.key not in self._roster.utterances or not (feed.lacks_clause and feed.has_unread):
                        break

    def _launch(self, decision: Decision) -> None:
        """A launch that fails ends its utterances; what the next one would have done for them is left out."""
        roster, token2wav = self._roster, self._pipeline.token2wav
        if decision.llm:
            with self._guarding([roster.utterances[key] for key in decision.llm]):
                passes = [roster.needs[key].generating for key in decision.llm]
                self._pipeline.launch_llm([clause for clause in passes if clause is not None])
        number = decision.advances
        if utterances := [roster.utterances[key] for key in decision.begins if key in roster.utterances]:
            with self._guarding(utterances):
                is_first = all(each.deadline_s is None for each in utterances)
                number = token2wav.begin([each.clauses[0] for each in utterances], is_first=is_first)
        if number is not None and (clauses := token2wav.clauses_of(number)):
            with self._guarding(roster.owners(clauses)):
                token2wav.advance(number)

    def _fetch(self) -> None:
        token2wav, utterances = self._pipeline.token2wav, self._roster.utterances
        for output in self._pipeline.llm.poll():
            clause = self._pipeline.generating.get(output.sequence_id)  # None: it was released
            if clause is not None and (utterance := utterances.get(clause.key)) is not None:
                with self._guarding((utterance,)):
                    self._take_output(utterance, clause, output)
        if clauses := token2wav.clauses_with_remainders:
            with self._guarding(self._roster.owners(clauses)):
                token2wav.vocode_remainders()
        for clause, samples in token2wav.fetch_samples():
            if (utterance := utterances.get(clause.key)) is not None:
                with self._changing(utterance):
                    self._speaking.take_samples(utterance, clause, samples)

    def _take_output(self, utterance: Utterance, clause: Clause, output: SequenceOutput) -> None:
        if output.error is not None:
            log.warning("clause_failed", utterance=utterance.utterance_id, reason=output.error)
            self._fail(utterance, output.error)
            return
        self._speaking.take_output(utterance, clause, output)
        # Tokens come to many a step, and most often nothing is new by them.
        needs = self._roster.needs.get(clause.key)
        is_news = needs is None or len(clause.tokens) >= needs.news_tokens or output.is_paused or output.is_final
        if is_news or not self._pipeline.can_generate(clause):
            self._roster.changed.add(clause.key)

    # --- questions --------------------------------------------------------------------------------------------

    unready_reason: None = None  # it always takes new requests, if only to let them wait

    @property
    def is_busy(self) -> bool:
        """Whether a GPU, or an LLM that schedules itself, is at work on something whose result is not here."""
        return self._pipeline.token2wav.is_busy or self._pipeline.llm.is_busy

    @property
    def num_fetched(self) -> int:
        """Number fetched so far, of LLM, flow and vocoder."""
        return self._pipeline.llm.num_fetched + self._pipeline.tally.num_rendered

    @property
    def rendering_pulse(self) -> int | None:
        """Pulse of flow and vocoder alone: changes with all that they get done; None while they have nothing under
        way."""
        return self._pipeline.tally.num_rendered if self._pipeline.token2wav.is_busy else None

    @property
    def num_live(self) -> int:
        """Utterances that have not ended."""
        return len(self._roster.utterances)

    @property
    def num_placed(self) -> int:
        """Without those at rest."""
        return len(self._roster.utterances) - len(self._roster.resting)

    @property
    def num_welcome(self) -> int:
        """New requests that would not have too many others before them in waiting for room in the models."""
        return self._room.num_welcome

    @property
    def counters(self) -> Mapping[str, float]:
        """Counts of the models' work since the start: llm_steps, _rows, _seconds, _launches (of CUDA graphs).

        The same of flow, whose steps are Euler steps, and vocoder, which has calls.
        """
        return {**self._pipeline.tally.counters, **self._pipeline.llm.counters}

    @property
    def gauges(self) -> Mapping[str, float]:
        """How much of the models is taken. From any thread."""
        return {"waiting_clauses": len(self._roster.waiting), **self._pipeline.gauges}

    @property
    def batch_sizes(self) -> Mapping[str, Sequence[int]]:
        """By stage, as EngineStats has them. From any thread."""
        return self._pipeline.tally.batch_sizes

    def stats(self, counters: Mapping[str, float]) -> EngineStats:
        """From any thread, for which `counters` were read in the engine's."""
        return EngineStats(counters, self.gauges, self.batch_sizes)

    def wait(self) -> None:
        """Until there is something to fetch: for callers without a waker."""
        self._pipeline.wait()

    def run_until_idle(self) -> None:
        """Step until nothing is left to do now, waiting for what is done beside this thread."""
        while True:
            num_fetched = self.num_fetched
            is_idle = self.step().is_idle and not self._roster.readers
            if is_idle and self.num_fetched == num_fetched:  # else what it has fetched after its decision is news
                if not self.is_busy:
                    return
                self.wait()

    # --- ends -------------------------------------------------------------------------------------------------

    def _changing(self, utterance: Utterance) -> Guard:
        """A guard, and a change after which the utterance is looked at again before the next decision."""
        self._roster.changed.add(utterance.key)
        return self._guarding((utterance,))

    def _fail_all_of(self, utterances: Sequence[Utterance], error: Exception) -> None:
        """`error` was raised in a guard: where several share a step it may be the fault of any."""
        if len(utterances) == 1:
            log.error("utterance_failed", utterance=utterances[0].utterance_id, exc_info=error)
        else:
            log.error("shared_step_failed", exc_info=error)
        for utterance in utterances:
            self._fail(utterance, INTERNAL_FAILURE)

    def _fail(self, utterance: Utterance, message: str) -> None:
        if utterance.key not in self._roster.utterances:  # it went wrong while it was ended
            return
        with self._guarding((utterance,)):
            self._remove(utterance)
            try:
                utterance.fail(message)
            finally:
                self._give_back(utterance)

    def _forget(self, utterance: Utterance) -> None:
        """Its end event has left, or will after its last packet."""
        self._remove(utterance)
        self._give_back(utterance)

    def _remove(self, utterance: Utterance) -> None:
        self._roster.remove(utterance)
        self._on_gone(utterance.utterance_id)

    def _give_back(self, utterance: Utterance) -> None:
        """At once, all that it holds, whatever goes wrong with some of it."""
        self._voices.note_use(utterance.voice)
        with ExitStack() as stack:
            stack.callback(self._release_voices)
            for clause in utterance.clauses:
                stack.callback(self._pipeline.release, clause)

    def _fail_voiceless(self, prompt: VoicePrompt, message: str) -> None:
        for utterance in self._roster:
            if utterance.voice.flow_prompt is prompt:
                self._fail(utterance, message)

    def _release_voices(self) -> None:
        self._voices.release_unused(utterance.voice for utterance in self._roster)
        self._arrivals.let_go(utterance.voice for utterance in self._roster)


def _limits_of(config: EngineConfig, stages: Stages) -> Limits:
    """`config`: resolved for the device."""
    return Limits(
        flow_batch=stages.flow.batch_size(config.max_flow_batch),
        buffered_flow_batch=stages.flow.batch_size(max(config.max_flow_batch, config.max_buffered_flow_batch)),
        guard_s=constants.GUARD_S,
        # A CPU's blocks take no less where few have work, and its few slots come free once a clause.
        light_guard_s=constants.LIGHT_GUARD_S if stages.is_concurrent else constants.GUARD_S,
        room_guard_s=constants.ROOM_GUARD_S if stages.is_concurrent else config.lead_ms / 1000,
        is_concurrent=stages.is_concurrent,
        shares_device=stages.shares_device,
    )
