"""The loop to read first: fetch what is done -> what is most urgent -> launch an LLM step, an Euler step -> and again.

Single-threaded and without a clock of its own: `worker` drives it in a thread, tests by hand. It decides nothing
(scheduler) and computes nothing (pipeline); it moves utterances along and turns failures into their end events.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import structlog

from voicegate.engine.audio.encoding import Encoders, LocalEncoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.interface import UtteranceId, UtteranceRequest
from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.loop.admission import Admission
from voicegate.engine.loop.clause import Clause, ClauseState
from voicegate.engine.loop.outlook import Outlook
from voicegate.engine.loop.pipeline import Pipeline
from voicegate.engine.loop.reception import Reception
from voicegate.engine.loop.stages import Stages
from voicegate.engine.loop.utterance import Utterance
from voicegate.engine.loop.voice_shelf import Answer, VoiceShelf
from voicegate.engine.loop.watchlist import WatchList
from voicegate.engine.policy.scheduler import AdvanceBatch, BeginBlocks, Decision, Limits, StreamView, decide
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

# What a client is told when the fault is ours; the log has the rest.
_INTERNAL_FAILURE = "internal error while speaking this utterance"


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
    ) -> None:
        """`sink` takes events as they happen, from this thread and from those of `encoders` (None: none of its own).

        `waker` is told of work that is done beside this thread: step again when it wakes.
        """
        self._config = config
        self._clock = clock
        encoders = encoders or LocalEncoders(opus_complexity=config.opus_complexity)
        self._reception = Reception(stages, encoders, sink, clock, max_clause_tokens=config.max_clause_tokens)
        self._pipeline = Pipeline(config, stages, waker=waker)
        self._limits = Limits(
            flow_batch=stages.flow.batch_size(config.max_flow_batch),
            calm_flow_batch=stages.flow.batch_size(max(config.max_flow_batch, config.max_calm_flow_batch)),
            guard_s=config.guard_ms / 1000,
            is_concurrent=stages.is_concurrent,
            llm_yields=config.llm_yields,
        )
        self._utterances: dict[int, Utterance] = {}  # by key: the order of submission
        self._keys: dict[UtteranceId, int] = {}
        self._num_submitted = 0
        self._watched = WatchList()
        self._voices = VoiceShelf(stages)
        self._outlook = Outlook(config, self._pipeline)
        self._admission = Admission(config, self._pipeline, self._outlook, self._watched)

    # --- commands: unknown or ended utterances are no-ops (interface.py) --------------------------------------

    def submit(self, request: UtteranceRequest, *, seed: int) -> None:
        """Start an utterance; what the interface promises to refuse was refused before."""
        key, self._num_submitted = self._num_submitted, self._num_submitted + 1
        utterance = self._reception.open(key, request, self._voices[request.voice], seed=seed)
        self._utterances[key] = utterance
        self._keys[request.utterance_id] = key

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        key = self._keys.get(utterance_id)
        if key is not None:
            now_s = self._clock()
            utterance = self._utterances[key]
            utterance.feed.push(text)
            utterance.last_text_s = now_s
            self._read(key, utterance)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        key = self._keys.get(utterance_id)
        if key is not None:
            self._utterances[key].feed.flush(flush_id)
            self._read(key, self._utterances[key])

    def end_text(self, utterance_id: UtteranceId) -> None:
        key = self._keys.get(utterance_id)
        if key is not None:
            self._utterances[key].feed.end()
            self._read(key, self._utterances[key])

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None) -> None:
        key = self._keys.get(utterance_id)
        if key is not None:
            self._utterances[key].cancel(played_ms)
            self._forget(self._utterances[key])

    def add_voice(self, voice: Voice, answer: Answer) -> None:
        """Within a few steps `answer` is told None, or why not; see VoiceShelf."""
        self._voices.add(voice, answer)

    def remove_voice(self, name: str) -> None:
        """Utterances that run keep it; submit none with it any more."""
        self._voices.remove(name)
        self._release_voices()

    def _release_voices(self) -> None:
        self._voices.release_unused(utterance.voice for utterance in self._utterances.values())

    def fail_all(self, message: str) -> None:
        for utterance in list(self._utterances.values()):
            self._fail_utterance(utterance, message)

    # --- the loop ---------------------------------------------------------------------------------------------

    def step(self) -> Decision:
        """Fetch what is done and launch the most urgent work; says what that was, or when to come back."""
        self._fetch()
        if self._voices.put_up_arrivals():
            self._release_voices()
        now_s = self._clock()
        for key in self._watched.ring(now_s):
            self._speak_if_stalled(key, now_s)
        for key, clause in self._admission.admit(self._utterances, now_s):
            self._start(key, clause)
        if self._admission.is_short is not self._outlook.is_room_short:
            self._outlook.is_room_short = self._admission.is_short
            self._watched.touched.update(self._utterances)  # who was held back within a clause, and who will be
        room = self._pipeline.room
        if not (room.takes_llm_step or room.takes_flow_step):
            return Decision(wake_at_s=self._watched.next_alarm_s)
        views = self._watched.look(now_s, self._view)
        decision = decide(views, now_s, self._limits, room)
        if not decision.is_idle:
            self._launch(decision)
            self._fetch()
            return decision
        if views and not self.is_busy:  # work, and nothing under way that would make room for it
            self._give_up_youngest()
            return self.step()
        return Decision(wake_at_s=self._watched.next_alarm_s)

    def _launch(self, decision: Decision) -> None:
        if decision.llm is not None:
            self._launch_llm(decision.llm.keys)
        match decision.flow:
            case BeginBlocks(keys):
                # A launch that failed just now has ended utterances; their blocks and batches went with them.
                self._begin_blocks([key for key in keys if key in self._utterances])
            case AdvanceBatch(batch):
                self._advance(batch)
            case None:
                pass

    @property
    def is_busy(self) -> bool:
        """Whether a GPU, or an LLM that schedules itself, is at work on something whose result is not here."""
        return self._pipeline.is_busy

    @property
    def is_full(self) -> bool:
        """Whether a newcomer would wait behind others for room in the models."""
        return self._admission.is_full

    @property
    def counters(self) -> Mapping[str, float]:
        """What the models did since the start: llm_steps, _rows, _seconds, _launches (of CUDA graphs).

        The same of flow, whose steps are Euler steps, and vocoder, which has calls.
        """
        return self._pipeline.counters

    def wait(self) -> None:
        """Until there is something to fetch: for callers without a waker."""
        self._pipeline.wait()

    def run_until_idle(self) -> None:
        """Step until nothing is left to do now, waiting for what is done beside this thread."""
        while True:
            if self.step().is_idle:
                if not self.is_busy:
                    return
                self.wait()

    def _fetch(self) -> None:
        for clause, output in self._pipeline.fetch_tokens():
            self._take_output(clause, output)
        for clause, samples in self._pipeline.fetch_samples():
            self._take_samples(clause, samples)

    def _view(self, key: int) -> StreamView | None:
        return self._outlook.view(key, self._utterances[key])

    def _speak_if_stalled(self, key: int, now_s: float) -> None:
        """Let text be said that has waited for more too long, or set the alarm for it."""
        if not self._config.stall_ms:
            return
        utterance = self._utterances[key]
        due_s = utterance.stalls_at_s(stall_s=self._config.stall_ms / 1000, lead_s=self._config.stall_lead_ms / 1000)
        if due_s is None:
            return
        if due_s > now_s:
            self._watched.set_alarm(key, due_s)
            return
        utterance.last_text_s = None
        utterance.feed.stalled()
        self._after_text(key, utterance)

    # --- clauses: waiting -> generating -> rendering -> spoken ------------------------------------------------

    def _start(self, key: int, clause: Clause) -> None:
        utterance = self._utterances[key]
        seed = clause_seed(utterance.seed, utterance.num_started_clauses)
        try:
            self._pipeline.start(
                clause,
                utterance.voice,
                is_streaming=utterance.feed.is_bistream,
                speed=utterance.request.speed,
                seed=seed,
            )
        except Exception:
            log.exception("clause_start_failed", utterance=utterance.utterance_id)
            self._fail_utterance(utterance, _INTERNAL_FAILURE)
            return
        self._watched.touched.add(key)
        clause.begun_s = self._clock()
        utterance.num_started_clauses += 1
        if utterance.stamps.llm_started_s is None:
            utterance.stamps.llm_started_s = clause.begun_s
        self._read(key, utterance)

    def _read(self, key: int, utterance: Utterance) -> None:
        """As much of its text as speech needs soon."""
        while utterance.feed.wants_reading:
            utterance.feed.read()
        self._after_text(key, utterance)
        if key in self._utterances:
            self._speak_if_stalled(key, self._clock())

    def _after_text(self, key: int, utterance: Utterance) -> None:
        self._watched.touched.add(key)
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
            utterance.flush(front, now_s)
        if utterance.is_finished:
            utterance.finish()
            self._forget(utterance)

    def _fail_utterance(self, utterance: Utterance, message: str) -> None:
        utterance.fail(message)
        self._forget(utterance)

    def _forget(self, utterance: Utterance) -> None:
        """Its end event has left, or will behind its last packet: give back at once what it holds."""
        for clause in utterance.clauses:
            self._pipeline.release(clause)
        utterance.clauses.clear()
        key = self._keys.pop(utterance.utterance_id)
        del self._utterances[key]
        self._watched.forget(key)
        self._admission.forget(key)
        self._release_voices()

    # --- work -------------------------------------------------------------------------------------------------

    def _launch_llm(self, keys: tuple[int, ...]) -> None:
        clauses = []
        for key in keys:
            clause = self._outlook.generating(self._utterances[key])
            # None: its steps are in flight, and nothing has happened since it was looked at.
            if clause is None or not clause.is_prefilled:
                self._watched.touched.add(key)
            if clause is not None:
                clauses.append(clause)
        if not clauses:
            return
        try:
            self._pipeline.launch_llm(clauses)
        except Exception:
            log.exception("llm_step_failed", num_clauses=len(clauses))
            self._fail(clauses)

    def _take_output(self, clause: Clause, output: SequenceOutput) -> None:
        utterance = self._utterances.get(clause.utterance_key)
        if utterance is None:
            return
        self._watched.touched.add(clause.utterance_key)
        if output.error is not None:
            log.warning("clause_failed", utterance=utterance.utterance_id, reason=output.error)
            self._fail_utterance(utterance, output.error)
            return
        if output.tokens and utterance.stamps.first_token_s is None:
            utterance.stamps.first_token_s = self._clock()
        if output.is_final:
            if output.is_truncated:
                utterance.is_truncated = True
                log.warning("clause_truncated", utterance=utterance.utterance_id, num_tokens=clause.num_tokens)
            utterance.align(clause)
            self._retire_spoken(utterance)

    def _begin_blocks(self, keys: list[int]) -> None:
        if not keys:
            return
        clauses = [self._utterances[key].clauses[0] for key in keys]
        self._watched.touched.update(keys)
        try:
            number = self._pipeline.begin(clauses)
        except Exception:
            log.exception("flow_begin_failed", num_clauses=len(clauses))
            self._fail(clauses)
            return
        self._advance(number)

    def _advance(self, number: int) -> None:
        clauses = self._pipeline.clauses_of(number)
        if not clauses:
            return
        try:
            is_solved = self._pipeline.advance(number)
        except Exception:
            log.exception("token2wav_failed", num_clauses=len(clauses))
            self._fail(clauses)
            return
        if is_solved:
            self._watched.touched.update(clause.utterance_key for clause in clauses)

    def _take_samples(self, clause: Clause, samples: npt.NDArray[np.float32]) -> None:
        utterance = self._utterances.get(clause.utterance_key)
        if utterance is None:
            return
        self._watched.touched.add(clause.utterance_key)
        if clause.start_ms is None:
            clause.start_ms = utterance.audio_ms
        utterance.deliver(samples, self._clock())
        utterance.align(clause)
        self._retire_spoken(utterance)

    def _give_up_youngest(self) -> None:
        """All flow memory is held by clauses that need more of it to go on: one has to make room for the others."""
        holding = [u for u in self._utterances.values() if any(clause.is_active for clause in u.clauses)]
        youngest = max(holding, key=lambda utterance: utterance.stamps.first_text_s or 0.0)
        log.error("flow_memory_exhausted", utterance=youngest.utterance_id, num_active=self._pipeline.num_active)
        self._fail_utterance(youngest, "the server ran out of memory for speech; try again later")

    def _fail(self, clauses: Iterable[Clause]) -> None:
        for clause in clauses:
            utterance = self._utterances.get(clause.utterance_key)
            if utterance is not None:
                self._fail_utterance(utterance, _INTERNAL_FAILURE)


def clause_seed(utterance_seed: int, clause_index: int) -> int:
    """Seeds of one utterance's clauses differ, and depend on nothing else. Stays within 63 bits."""
    return (utterance_seed * 1_000_003 + clause_index) % 2**63
