"""Runs the models for clauses: LLM steps, flow batches, vocoder. Knows no utterance and decides no order.

A stage's exception is the caller's to handle; the clauses it concerned are then released, the others go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from engine import units
from engine.clause import Clause, ClauseState, ModelStreams
from engine.llm.backend import SequenceOutput, SequenceRequest
from engine.llm.silent_filter import SilentTokenFilter
from engine.stages import ReadyVoice, Stages
from engine.token2wav.flow.stream import FlowBatch
from engine.token2wav.stretch import MelStretch
from engine.token2wav.vocoder.runner import VocoderJob


@dataclass(slots=True)
class _RunningBatch:
    flow_batch: FlowBatch
    clauses: list[Clause]


class Pipeline:
    def __init__(self, stages: Stages, *, max_clause_tokens: int) -> None:
        self._stages = stages
        self._max_clause_tokens = max_clause_tokens
        self._numbers = count()
        self._batches: dict[int, _RunningBatch] = {}

    # --- a clause's life --------------------------------------------------------------------------------------

    def start(self, clause: Clause, voice: ReadyVoice, *, speed: float, seed: int) -> None:
        """Begin the clause's LLM pass. Raises what the models raise when they have no room; then nothing is held."""
        stages = self._stages
        flow = stages.flow.open(voice.flow_prompt)
        try:
            streams = ModelStreams(
                sequence_id=next(self._numbers),
                silent_filter=SilentTokenFilter(stages.model.silent_tokens, stages.model.max_silent_run),
                flow=flow,
                stretch=MelStretch(speed),
                vocoder=stages.vocoder.open(),
            )
        except Exception:
            stages.flow.close(flow)
            raise
        clause.streams = streams
        clause.state = ClauseState.GENERATING
        text_ids, clause.text_ids = tuple(clause.text_ids), []
        is_streaming = not clause.is_text_complete
        try:
            stages.llm.add(
                SequenceRequest(
                    sequence_id=streams.sequence_id,
                    prompt=voice.llm_prompt,
                    text_ids=text_ids,
                    is_streaming=is_streaming,
                    seed=seed,
                    max_tokens=self._max_clause_tokens,
                )
            )
        except Exception:
            self.release(clause)
            raise

    def feed(self, clause: Clause) -> None:
        """Hand text that came since the start to a running bistream pass."""
        if clause.streams is None or clause.state is not ClauseState.GENERATING:
            return
        text_ids, clause.text_ids = tuple(clause.text_ids), []
        if text_ids:
            self._stages.llm.push_text(clause.streams.sequence_id, text_ids)
        if clause.is_text_complete:
            self._stages.llm.end_text(clause.streams.sequence_id)

    def release(self, clause: Clause) -> None:
        """Give back everything the clause holds, at once, whatever it is in the middle of. Idempotent."""
        streams, clause.streams = clause.streams, None
        if streams is None:
            return
        self._stages.llm.abort(streams.sequence_id)
        self._leave_batch(clause)
        self._stages.flow.close(streams.flow)
        self._stages.vocoder.close(streams.vocoder)

    def _leave_batch(self, clause: Clause) -> None:
        """The flow drops the stream from its batch when it is closed; what nobody waits for is not solved further."""
        number, clause.batch = clause.batch, None
        batch = self._batches.get(number) if number is not None else None
        if number is not None and batch is not None:
            batch.clauses.remove(clause)
            if not batch.clauses:
                del self._batches[number]

    # --- questions --------------------------------------------------------------------------------------------

    def can_generate(self, clause: Clause) -> bool:
        return (
            clause.streams is not None
            and clause.state is ClauseState.GENERATING
            and self._stages.llm.is_runnable(clause.streams.sequence_id)
        )

    def has_block(self, clause: Clause) -> bool:
        return clause.streams is not None and clause.batch is None and clause.streams.flow.is_ready

    # --- work -------------------------------------------------------------------------------------------------

    def llm_step(self, clauses: Sequence[Clause]) -> list[tuple[Clause, SequenceOutput]]:
        """One decode step; the tokens are in the clauses' flows when it returns."""
        by_sequence = {clause.streams.sequence_id: clause for clause in clauses if clause.streams is not None}
        results = []
        for output in self._stages.llm.step(list(by_sequence)):
            clause = by_sequence[output.sequence_id]
            self._take_tokens(clause, output)
            results.append((clause, output))
        return results

    def _take_tokens(self, clause: Clause, output: SequenceOutput) -> None:
        streams = clause.streams
        if streams is None or output.error is not None:
            return
        tokens = streams.silent_filter.keep(output.tokens)
        clause.num_tokens += len(tokens)
        streams.flow.append(tokens)
        if output.is_final:
            clause.state = ClauseState.RENDERING
            streams.flow.finish()
            if streams.flow.is_exhausted:
                clause.state = ClauseState.SPOKEN

    def begin(self, clauses: Sequence[Clause]) -> int:
        """Start solving the clauses' ready blocks together; returns the batch's number."""
        flow_batch = self._stages.flow.begin([clause.streams.flow for clause in clauses if clause.streams is not None])
        number = next(self._numbers)
        self._batches[number] = _RunningBatch(flow_batch, list(clauses))
        for clause in clauses:
            clause.batch = number
        return number

    def advance(self, number: int) -> list[tuple[Clause, npt.NDArray[np.float32]]]:
        """One Euler step of a batch. After its last: each clause with the samples [n] that have become final."""
        batch = self._batches[number]
        if not batch.flow_batch.advance():
            return []
        del self._batches[number]
        for clause in batch.clauses:
            clause.batch = None
        return self._vocode(batch)

    def clauses_of(self, number: int) -> list[Clause]:
        batch = self._batches.get(number)
        return list(batch.clauses) if batch is not None else []

    def _vocode(self, batch: _RunningBatch) -> list[tuple[Clause, npt.NDArray[np.float32]]]:
        clauses: list[Clause] = []
        jobs: list[VocoderJob] = []
        for clause, mel in zip(batch.clauses, batch.flow_batch.result(), strict=True):
            assert clause.streams is not None
            clause.num_rendered_tokens += mel.shape[1] // units.FRAMES_PER_TOKEN
            is_last = clause.streams.flow.is_exhausted
            if is_last:
                clause.state = ClauseState.SPOKEN
            mel = clause.streams.stretch.push(mel, is_final=is_last)
            # A block may be all prompt: a voice whose prompt ends on a block border.
            if mel.shape[1] or is_last:
                clauses.append(clause)
                jobs.append(VocoderJob(clause.streams.vocoder, mel, is_last))
        samples = self._stages.vocoder.run(jobs)
        return [(clause, pcm.cpu().numpy()) for clause, pcm in zip(clauses, samples, strict=True)]
