"""Runs the models for clauses: what each holds of them, the LLM's steps, and what `token2wav` makes of its tokens.

Knows no utterance and decides no order. Work is launched and its results are fetched later: at once on a CPU, when the
GPU has reached them otherwise. From an LLM that schedules itself they are only fetched. A stage's exception is the
caller's to handle; the clauses it concerned are then released, the others go on.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause, ClauseState, LlmPass, Rendering
from voicegate.engine.core.policy import Intake
from voicegate.engine.core.reservations import Reservations
from voicegate.engine.core.stages import ReadyVoice, Stages
from voicegate.engine.core.tally import Tally
from voicegate.engine.core.token2wav import MAX_LAUNCHES_IN_FLIGHT, Token2wav
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.silent_filter import SilentTokenFilter
from voicegate.engine.vocoder.stretch import MelStretch


class Pipeline:
    def __init__(self, config: EngineConfig, stages: Stages, changed: set[int], *, waker: Waker = NO_WAKER) -> None:
        """`changed` gets the keys of clauses' utterances that are to be looked at again.

        `waker` is told of everything that is there to be fetched later than it was launched.
        """
        self._config = config
        self._stages = stages
        self.llm = stages.llm
        self.llm.set_waker(waker)
        self._changed = changed
        self.generating: dict[int, Clause] = {}  # by sequence id
        self.active: set[Clause] = set()
        self._reservations = Reservations(config, stages.flow)
        self.num_releases = 0
        self._num_llm_steps = 0
        self.tally = Tally()
        self.token2wav = Token2wav(stages, self._reservations, self.tally, changed, waker)

    # --- a clause's life --------------------------------------------------------------------------------------

    def start(
        self,
        clause: Clause,
        voice: ReadyVoice,
        *,
        is_streaming: bool,
        speed: float,
        seed: int,
        until: int | None = None,
    ) -> None:
        """Begin the clause's LLM pass. Raises what the models raise when they have no room; then nothing is held.

        `is_streaming`: bistream, also where all text has come before the pass begins: when it came changes nothing.
        `until`: so many speech tokens of text that still grows, then `read_again`; None: all of it is there.
        """
        stages = self._stages
        self.render(clause, voice, speed=speed)
        try:
            filter_ = SilentTokenFilter(stages.model.silent_tokens, stages.model.max_silent_run)
            llm_pass = LlmPass(next(stages.sequence_ids), filter_)
            prompt, text_ids = voice.llm_prompt.before(clause.text_ids, is_streaming=is_streaming)
            is_growing = until is not None
            stages.llm.add(
                SequenceRequest(
                    sequence_id=llm_pass.sequence_id,
                    prompt=prompt,
                    text_ids=() if is_growing else text_ids,
                    is_streaming=is_streaming,
                    is_growing=is_growing,
                    seed=seed,
                    max_tokens=self._config.max_clause_tokens,
                )
            )
            clause.llm_pass, clause.state = llm_pass, ClauseState.GENERATING
            self.generating[llm_pass.sequence_id] = clause
            if is_growing:  # it is read again from its beginning
                stages.llm.read(llm_pass.sequence_id, text_ids, until=until)
                return
            clause.given_ids, clause.text_ids = clause.text_ids, []
            if is_streaming and clause.is_text_complete:
                stages.llm.end_text(llm_pass.sequence_id)
        except Exception:
            self.release(clause)
            raise

    def feed(self, clause: Clause) -> None:
        """Hand text that came since the start to a running bistream pass."""
        if clause.llm_pass is None:
            return
        text_ids, clause.text_ids = tuple(clause.text_ids), []
        clause.given_ids += text_ids
        if text_ids:
            self.llm.push_text(clause.llm_pass.sequence_id, text_ids)
        if clause.is_text_complete:
            self.llm.end_text(clause.llm_pass.sequence_id)

    def read_again(self, clause: Clause, voice: ReadyVoice, *, until: int | None) -> None:
        """Go on with a paused pass, with all text that the clause has by now; `until` as in `start`."""
        assert clause.llm_pass is not None
        _, text_ids = voice.llm_prompt.before(clause.text_ids, is_streaming=False)
        self.llm.read(clause.llm_pass.sequence_id, text_ids, until=until)
        clause.is_paused = clause.is_prefilled = False
        self._reservations.note_text(clause)

    def render(self, clause: Clause, voice: ReadyVoice, *, speed: float) -> None:
        """Begin to make sound of the clause's tokens, those it has and those to come. Raises as `start`.

        Of a clause that was set aside it is the same sound once more: what its listener has is not sent again.
        """
        stages, prompt = self._stages, voice.flow_prompt.rendered
        assert prompt is not None, "admission waits for it"
        self.catch_up(clause)
        with ExitStack() as undo:
            flow = stages.flow.open(prompt, begins_short=clause.begins_short)
            undo.callback(stages.flow.close, flow)
            flow.append(clause.tokens)
            if clause.state is ClauseState.RENDERING:
                flow.finish()
            vocoder = stages.vocoder.open()
            undo.pop_all()
        num_blocks = self._reservations.expected_blocks(clause)
        clause.rendering = Rendering(flow, MelStretch(speed), vocoder, num_blocks, num_blocks)
        clause.num_rendered_tokens = 0
        self.active.add(clause)
        self._reservations.reserve(clause.rendering)

    def set_aside(self, clause: Clause) -> None:
        """Give back at once what its sound takes. Its tokens are kept, its LLM pass goes on: `render` takes it up."""
        rendering, clause.rendering = clause.rendering, None
        if rendering is None:
            return
        self.active.remove(clause)
        self._reservations.give_back(rendering)
        self.num_releases += 1
        self.token2wav.leave(clause)
        with ExitStack() as stack:
            stack.callback(self._stages.flow.close, rendering.flow)
            stack.callback(self._stages.vocoder.close, rendering.vocoder)

    def release(self, clause: Clause) -> None:
        """Give back everything the clause holds, at once, whatever it is in the middle of. Idempotent."""
        with ExitStack() as stack:
            stack.callback(self.set_aside, clause)
            if clause.llm_pass is not None:
                if clause.rendering is None:  # a slot is room, too
                    self.num_releases += 1
                stack.callback(self.llm.abort, self._end_pass(clause, clause.llm_pass))

    def start_over(self, clause: Clause) -> None:
        """Nothing came of its text: it waits for a pass as it did before."""
        self.release(clause)
        clause.state = ClauseState.WAITING
        clause.text_ids, clause.given_ids = [*clause.given_ids, *clause.text_ids], []
        clause.is_prefilled = clause.is_paused = False
        clause.prefill_since_s = clause.second_since = None
        clause.spent_letters = 0

    def _end_pass(self, clause: Clause, llm_pass: LlmPass) -> int:
        clause.llm_pass = None
        del self.generating[llm_pass.sequence_id]
        return llm_pass.sequence_id

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def gauges(self) -> Mapping[str, float]:
        """How much of the models is taken. From any thread."""
        return {
            "active_clauses": len(self.active),
            "max_active_clauses": self._config.max_active_clauses,
            "free_llm_slots": self.llm.num_free_slots,
            **self._reservations.gauges,
        }

    def can_start(self, clause: Clause) -> bool:
        """Whether the models have room to start it, or to render it again; flow blocks, so many as it will likely fill.

        A single one may try: no other's end would make more room.
        """
        if len(self.active) >= self._config.max_active_clauses:
            return False
        if clause.state is ClauseState.WAITING and not self.llm.num_free_slots:
            return False
        return not self.active or self._reservations.has_room(clause)

    def can_generate(self, clause: Clause) -> bool:
        llm_pass = clause.llm_pass
        return llm_pass is not None and self.llm.is_runnable(llm_pass.sequence_id)

    @property
    def intake(self) -> Intake:
        """Work that the lanes take now."""
        num_solving = self.token2wav.num_solving
        return Intake(
            takes_llm_step=self.llm.takes_step,
            num_llm_steps=self._num_llm_steps,
            is_llm_busy=self.llm.is_busy,
            takes_flow_step=num_solving < MAX_LAUNCHES_IN_FLIGHT,
            is_flow_busy=num_solving > 0,
            is_token2wav_idle=not self.token2wav.is_busy,
            num_new_batches=self._stages.flow.num_free_batches,
            num_blocks=self._stages.flow.num_free_blocks,
            has_first_blocks_under_way=self.token2wav.has_first_blocks_under_way,
        )

    def wait(self) -> None:
        """Until everything launched is done, and an LLM that schedules itself has made something."""
        self.llm.wait()
        self.token2wav.wait()

    # --- the LLM ----------------------------------------------------------------------------------------------

    def launch_llm(self, clauses: Sequence[Clause]) -> None:
        """One decode step (or prefill) of these; `take_tokens` is given what the LLM makes of it.

        Nothing reports that no further step can be launched after those in flight: all would be looked at twice a step
        for it. It shows here.
        """
        passes = {clause.llm_pass.sequence_id: clause for clause in clauses if clause.llm_pass is not None}
        left = self.llm.launch(list(passes))  # those that cannot go on now
        if num_rows := len(passes) - len(left):
            self.tally.note_batch("llm", num_rows)
            self._num_llm_steps += 1
        for sequence_id, clause in passes.items():
            if sequence_id in left or not clause.is_prefilled:
                clause.is_prefilled = clause.is_prefilled or sequence_id not in left
                self._changed.add(clause.key)

    def catch_up(self, clause: Clause) -> None:
        """Take what the LLM has kept of it. Raises as `take_tokens`."""
        if clause.llm_pass is not None and (tokens := self.llm.take_held(clause.llm_pass.sequence_id)):
            self.take_tokens(clause, SequenceOutput(clause.llm_pass.sequence_id, tokens))

    def take_tokens(self, clause: Clause, output: SequenceOutput) -> None:
        """Hand what the LLM made of the clause to its flow. Raises what the flow refuses: StreamTooLong, say."""
        llm_pass = clause.llm_pass
        if llm_pass is None:
            return
        tokens = llm_pass.silent_filter.keep(output.tokens)
        clause.tokens.extend(tokens)
        flow = clause.rendering.flow if clause.rendering is not None else None
        if flow is not None:
            flow.append(tokens)
        if output.is_paused:
            clause.is_paused = True
            clause.spent_letters = clause.num_letters if output.is_spent else 0
        if output.is_final:
            self._end_pass(clause, llm_pass)
            clause.state = ClauseState.RENDERING
            self._reservations.note_length(clause)
            if flow is not None:
                flow.finish()
                if flow.is_exhausted:
                    clause.state = ClauseState.SPOKEN
            else:  # it was set aside
                self.num_releases += 1  # of a slot, which is room, too
                if not clause.tokens:
                    clause.state = ClauseState.SPOKEN
