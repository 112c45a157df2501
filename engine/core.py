"""The loop to read first: what is most urgent -> one LLM step or one Euler step -> samples -> packets -> events.

Single-threaded and without a clock of its own: `worker` drives it in a thread, tests by hand. It decides nothing
(scheduler) and computes nothing (pipeline); it moves utterances along and turns failures into their end events.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

import structlog

from engine.audio.packets import create_packet_encoder
from engine.clause import Clause, ClauseState
from engine.clause_feed import ClauseFeed
from engine.config import EngineConfig
from engine.interface import EngineEvent, Failed, SpeakingMode, UtteranceId, UtteranceRequest
from engine.pipeline import Pipeline
from engine.scheduler import AdvanceBatch, BeginBlocks, Decision, LlmStep, StreamView, Work, decide, urgency
from engine.stages import Stages
from engine.utterance import Utterance

log = structlog.get_logger()

# What a client is told when the fault is ours; the log has the rest.
_INTERNAL_FAILURE = "internal error while speaking this utterance"


class EngineCore:
    def __init__(self, config: EngineConfig, stages: Stages, clock: Callable[[], float]) -> None:
        self._config = config
        self._stages = stages
        self._clock = clock
        self._pipeline = Pipeline(stages, max_clause_tokens=config.max_clause_tokens)
        self._utterances: dict[int, Utterance] = {}  # by key: the order of submission
        self._keys: dict[UtteranceId, int] = {}
        self._num_submitted = 0
        self._events: list[EngineEvent] = []

    # --- commands: unknown or ended utterances are no-ops (interface.py) --------------------------------------

    def submit(self, request: UtteranceRequest, *, seed: int) -> None:
        """Start an utterance; what the interface promises to refuse was refused before."""
        key, self._num_submitted = self._num_submitted, self._num_submitted + 1
        mode = request.mode
        if mode is SpeakingMode.AUTO:
            mode = SpeakingMode(self._stages.model.default_mode)
        feed = ClauseFeed(key, mode, self._stages.tokenizer, language=self._stages.model.languages[0])
        voice = self._stages.voices[request.voice]
        self._utterances[key] = Utterance(request, voice, feed, create_packet_encoder(request.audio), seed=seed)
        self._keys[request.utterance_id] = key

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        utterance = self._find(utterance_id)
        if utterance is not None:
            utterance.feed.push(text)
            self._after_text(utterance)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        utterance = self._find(utterance_id)
        if utterance is not None:
            utterance.feed.flush(flush_id)
            self._after_text(utterance)

    def end_text(self, utterance_id: UtteranceId) -> None:
        utterance = self._find(utterance_id)
        if utterance is not None:
            utterance.feed.end()
            self._after_text(utterance)

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None) -> None:
        utterance = self._find(utterance_id)
        if utterance is not None:
            self._end(utterance, utterance.cancelled(played_ms))

    def fail_all(self, message: str) -> None:
        for utterance in list(self._utterances.values()):
            self._end(utterance, Failed(utterance.utterance_id, message))

    def take_events(self) -> list[EngineEvent]:
        """Everything that has happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    # --- the loop ---------------------------------------------------------------------------------------------

    def step(self) -> Decision:
        """Do the one most urgent piece of work; says what it was, or when to come back if nothing is due."""
        self._start_clauses()
        views = [view for key, utterance in self._utterances.items() if (view := self._view(key, utterance))]
        decision = decide(views, self._clock(), max_flow_batch=self._config.max_flow_batch)
        if decision.work is not None:
            self._perform(decision.work)
        return decision

    def _perform(self, work: Work) -> None:
        match work:
            case LlmStep(keys):
                self._llm_step([clause for key in keys if (clause := self._generating(self._utterances[key]))])
            case BeginBlocks(keys):
                self._begin_blocks([self._utterances[key].clauses[0] for key in keys])
            case AdvanceBatch(batch):
                self._advance(batch)
            case _:
                assert_never(work)

    def _view(self, key: int, utterance: Utterance) -> StreamView | None:
        """What the scheduler sees of an utterance; None while it has nothing to say."""
        if not utterance.clauses or utterance.stamps.first_text_s is None:
            return None
        front = utterance.clauses[0]
        return StreamView(
            key=key,
            waiting_since_s=utterance.stamps.first_text_s,
            deadline_s=utterance.deadline_s,
            max_lead_s=self._max_lead_s(utterance),
            wants_llm=self._generating(utterance) is not None,
            has_block=self._pipeline.has_block(front),
            batch=front.batch,
        )

    def _max_lead_s(self, utterance: Utterance) -> float:
        asked_ms = utterance.request.lead_ms
        lead_ms = self._config.lead_ms if asked_ms is None else min(asked_ms, self._config.max_lead_ms)
        return lead_ms / 1000

    # --- clauses: waiting -> generating -> rendering -> spoken ------------------------------------------------

    def _start_clauses(self) -> None:
        """Give free places to the clauses that are next in their utterances, the most urgent utterances first."""
        num_active = sum(clause.is_active for utterance in self._utterances.values() for clause in utterance.clauses)
        num_free = self._config.max_active_clauses - num_active
        waiting = [
            (view, utterance, clause)
            for key, utterance in self._utterances.items()
            if (clause := self._startable(utterance)) and (view := self._view(key, utterance))
        ]
        waiting.sort(key=lambda entry: urgency(entry[0]))
        for _, utterance, clause in waiting[: max(num_free, 0)]:
            self._start(utterance, clause)

    def _startable(self, utterance: Utterance) -> Clause | None:
        """The next clause, once the one before has all its tokens, if neither flow nor listener is far behind."""
        if utterance.deadline_s is not None and utterance.deadline_s - self._max_lead_s(utterance) > self._clock():
            return None
        num_ahead = 0
        for clause in utterance.clauses:
            if clause.state is ClauseState.GENERATING or num_ahead >= self._config.llm_ahead_tokens:
                return None
            if clause.state is ClauseState.WAITING:
                return clause if clause.text_ids else None
            num_ahead += clause.num_ahead_tokens
        return None

    def _generating(self, utterance: Utterance) -> Clause | None:
        """The clause whose LLM pass can go on now: one an utterance, and not too far ahead of the flow."""
        num_ahead = 0
        for clause in utterance.clauses:
            num_ahead += clause.num_ahead_tokens
            if clause.state is ClauseState.GENERATING:
                is_wanted = num_ahead < self._config.llm_ahead_tokens
                return clause if is_wanted and self._pipeline.can_generate(clause) else None
        return None

    def _start(self, utterance: Utterance, clause: Clause) -> None:
        seed = clause_seed(utterance.seed, utterance.num_started_clauses)
        try:
            self._pipeline.start(clause, utterance.voice, speed=utterance.request.speed, seed=seed)
        except Exception:
            log.exception("clause_start_failed", utterance=utterance.utterance_id)
            self._end(utterance, Failed(utterance.utterance_id, _INTERNAL_FAILURE))
            return
        utterance.num_started_clauses += 1
        if utterance.stamps.llm_started_s is None:
            utterance.stamps.llm_started_s = self._clock()

    def _after_text(self, utterance: Utterance) -> None:
        if utterance.stamps.first_text_s is None and any(clause.text_ids for clause in utterance.clauses):
            utterance.stamps.first_text_s = self._clock()
        if utterance.feed.is_bistream:
            for clause in utterance.clauses:
                self._pipeline.feed(clause)
        self._retire_spoken(utterance)

    def _retire_spoken(self, utterance: Utterance) -> None:
        """Drop clauses from the front that are spoken or have nothing to say; the last one ends the utterance."""
        now_s = self._clock()
        while utterance.clauses:
            front = utterance.clauses[0]
            if front.state is not ClauseState.SPOKEN and not front.is_silent:
                return
            self._pipeline.release(front)
            utterance.clauses.popleft()
            self._events += utterance.flushed(front, now_s)
        if utterance.is_finished:
            events = utterance.done(now_s)
            self._events += events[:-1]
            self._end(utterance, events[-1])

    def _end(self, utterance: Utterance, event: EngineEvent) -> None:
        for clause in utterance.clauses:
            self._pipeline.release(clause)
        utterance.clauses.clear()
        del self._utterances[self._keys.pop(utterance.utterance_id)]
        self._events.append(event)

    def _find(self, utterance_id: UtteranceId) -> Utterance | None:
        key = self._keys.get(utterance_id)
        return None if key is None else self._utterances[key]

    # --- work -------------------------------------------------------------------------------------------------

    def _llm_step(self, clauses: list[Clause]) -> None:
        try:
            results = self._pipeline.llm_step(clauses)
        except Exception:
            log.exception("llm_step_failed", num_clauses=len(clauses))
            self._fail(clauses)
            return
        now_s = self._clock()
        for clause, output in results:
            utterance = self._utterances[clause.utterance_key]
            if output.error is not None:
                log.warning("clause_failed", utterance=utterance.utterance_id, reason=output.error)
                self._end(utterance, Failed(utterance.utterance_id, output.error))
                continue
            if output.tokens and utterance.stamps.first_token_s is None:
                utterance.stamps.first_token_s = now_s
            if output.is_final:
                if output.is_truncated:
                    log.warning("clause_truncated", utterance=utterance.utterance_id, num_tokens=clause.num_tokens)
                self._events += utterance.align(clause)
                self._retire_spoken(utterance)

    def _begin_blocks(self, clauses: list[Clause]) -> None:
        try:
            number = self._pipeline.begin(clauses)
        except Exception:
            log.exception("flow_begin_failed", num_clauses=len(clauses))
            self._fail(clauses)
            return
        self._advance(number)

    def _advance(self, number: int) -> None:
        clauses = self._pipeline.clauses_of(number)
        try:
            results = self._pipeline.advance(number)
        except Exception:
            log.exception("token2wav_failed", num_clauses=len(clauses))
            self._fail(clauses)
            return
        now_s = self._clock()
        for clause, samples in results:
            utterance = self._utterances[clause.utterance_key]
            if clause.start_ms is None:
                clause.start_ms = utterance.audio_ms
            self._events += utterance.deliver(samples, now_s)
            self._events += utterance.align(clause)
            self._retire_spoken(utterance)

    def _fail(self, clauses: Iterable[Clause]) -> None:
        for clause in clauses:
            utterance = self._utterances[clause.utterance_key]
            self._end(utterance, Failed(utterance.utterance_id, _INTERNAL_FAILURE))


def clause_seed(utterance_seed: int, clause_index: int) -> int:
    """Seeds of one utterance's clauses differ, and depend on nothing else. Stays within 63 bits."""
    return (utterance_seed * 1_000_003 + clause_index) % 2**63
