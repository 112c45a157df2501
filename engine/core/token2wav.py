"""Work on the lane of flow and vocoder: batches of blocks, an Euler step at a time, and after each the vocoder.

Launched and fetched later, as the pipeline says. A clause that was released or set aside meanwhile gets nothing.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine import units
from voicegate.engine.core.clause import Clause, ClauseState, Rendering
from voicegate.engine.core.policy import euler_steps_at_once
from voicegate.engine.core.reservations import Reservations
from voicegate.engine.core.stages import Stages
from voicegate.engine.core.tally import Tally
from voicegate.engine.device.lanes import Mark
from voicegate.engine.device.watcher import Waker
from voicegate.engine.flow.backend import FlowBatch, PromptRendering
from voicegate.engine.vocoder.backend import VocoderJob

# Launches of Euler steps that are not finished. More would only let a cancel or a new request wait longer; fewer would
# let a GPU wait for Python between them.
MAX_LAUNCHES_IN_FLIGHT = 2


@dataclass(slots=True)
class _RunningBatch:
    flow_batch: FlowBatch
    clauses: list[Clause]
    num_steps_at_once: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Samples on their way to the host, of each clause."""

    begin: Mark
    mark: Mark
    clauses: list[Clause]
    renderings: list[Rendering | None]  # whose the samples are: a clause may be released or set aside meanwhile
    samples: list[torch.Tensor]
    are_final: list[bool]  # the clause's last
    is_first: bool  # see `Token2wav.begin`


@dataclass(frozen=True, slots=True)
class _Remainder:
    """All that is left of a clause's first block, after what its listener is given first."""

    clause: Clause
    job: VocoderJob


class Token2wav:
    def __init__(
        self, stages: Stages, reservations: Reservations, tally: Tally, changed: set[int], waker: Waker
    ) -> None:
        self._flow = stages.flow
        self._vocoder = stages.vocoder
        self._lane = stages.token2wav_lane
        self._reservations = reservations
        self._tally = tally
        self._changed = changed
        self._waker = waker
        self._is_concurrent = stages.is_concurrent
        self._frames_ahead = stages.frames_ahead
        self._batch_numbers = count()
        self._batches: dict[int, _RunningBatch] = {}
        self.num_steps = 0  # Euler steps of speech
        self._solving: deque[tuple[Mark, Mark]] = deque()  # begin and end of launches
        self._rendered: deque[_Rendered] = deque()
        self._remainders: list[_Remainder] = []

    # --- batches of blocks ------------------------------------------------------------------------------------

    def begin(self, clauses: Sequence[Clause], *, is_first: bool) -> int:
        """Start solving the clauses' ready blocks together; returns the batch's number.

        `is_first`: none of their listeners has heard anything.
        """
        streams = [each.rendering.flow for each in clauses if each.rendering is not None]
        # A processor is shared by all: what is more urgent comes between any two steps.
        num_frames = sum(each.next_num_frames for each in streams)
        num_at_once = euler_steps_at_once(num_frames, is_first=is_first) if self._is_concurrent else 1
        with self._lane.active():
            flow_batch = self._flow.begin(streams)
        number = next(self._batch_numbers)
        self._batches[number] = _RunningBatch(flow_batch, list(clauses), num_at_once, is_first)
        for clause in clauses:
            clause.batch = number
            self._changed.add(clause.key)
        return number

    def advance(self, number: int) -> None:
        """The next Euler steps of a batch; after the last one comes the vocoder, then `fetch_samples`."""
        batch = self._batches[number]
        advance = batch.flow_batch.advance
        num_steps, is_last = self._launch(advance, num_rows=len(batch.clauses), num_steps=batch.num_steps_at_once)
        self.num_steps += num_steps
        if is_last:
            del self._batches[number]
            for clause in batch.clauses:
                clause.batch = None
                self._changed.add(clause.key)
            with self._lane.active():
                self._vocode(*self._take_jobs(batch), is_first=batch.is_first)

    def advance_prompt(self, rendering: PromptRendering[Any]) -> bool:
        """One Euler step of a voice's prompt, which is no clause's; True if it was the last."""
        return self._launch(rendering.advance, num_rows=1, num_steps=1)[1]

    def _launch(self, advance: Callable[[], bool], *, num_rows: int, num_steps: int) -> tuple[int, bool]:
        """So many Euler steps, or those that are left; how many, and whether the last is among them."""
        with self._lane.active():
            last = self._solving[-1][1] if self._solving else None
            # After a step that still runs this one begins at its end: another mark would say the same.
            begin = last if last is not None and not last.is_reached else self._lane.mark()
            is_last, num_done = False, 0
            while not is_last and num_done < num_steps:
                is_last, num_done = advance(), num_done + 1
                self._tally.ran("flow", "steps", num_rows, num_launches=self._flow.graphs.num_launches)
            mark = self._lane.mark()
        self._solving.append((begin, mark))
        self._waker.watch(mark)
        return num_done, is_last

    def clauses_of(self, number: int) -> list[Clause]:
        batch = self._batches.get(number)
        return list(batch.clauses) if batch is not None else []

    def leave(self, clause: Clause) -> None:
        """The flow drops the stream from its batch when it is closed; a batch without streams is not solved further."""
        self._remainders = [each for each in self._remainders if each.clause is not clause]
        number, clause.batch = clause.batch, None
        batch = self._batches.get(number) if number is not None else None
        if number is not None and batch is not None:
            batch.clauses.remove(clause)
            if not batch.clauses:
                del self._batches[number]

    # --- the vocoder, after them ------------------------------------------------------------------------------

    def _take_jobs(self, batch: _RunningBatch) -> tuple[list[Clause], list[VocoderJob]]:
        """The jobs of each clause with frames for the vocoder."""
        clauses: list[Clause] = []
        jobs: list[VocoderJob] = []
        for clause, mel in zip(batch.clauses, batch.flow_batch.result(), strict=True):
            rendering = clause.rendering
            assert rendering is not None
            clause.num_rendered_tokens += mel.shape[1] // units.FRAMES_PER_TOKEN
            self._reservations.note_filled(rendering)
            is_final = rendering.flow.is_exhausted
            mel = rendering.stretch.push(mel, is_final=is_final)
            # A block may be all prompt: a voice whose prompt ends on a block border.
            if mel.shape[1] or is_final:
                clauses.append(clause)
                jobs.append(self._heard_first(clause, rendering, VocoderJob(rendering.vocoder, mel, is_final)))
        return clauses, jobs

    def _heard_first(self, clause: Clause, rendering: Rendering, job: VocoderJob) -> VocoderJob:
        """All of it; or a first block's beginning, whose remainder is for `vocode_remainders`.

        By what it renders and nothing else: samples differ by rounding where frames are cut otherwise.
        """
        assert all(each.clause is not clause for each in self._remainders), "a remainder comes before the next block"
        num_frames = self._vocoder.held_back_frames + self._frames_ahead
        if not self._frames_ahead or rendering.num_samples or job.mel.shape[1] <= num_frames:
            return job
        remainder = VocoderJob(job.stream, job.mel[:, num_frames:], job.is_final)
        self._remainders.append(_Remainder(clause, remainder))
        return VocoderJob(job.stream, job.mel[:, :num_frames], is_final=False)

    @property
    def clauses_with_remainders(self) -> list[Clause]:
        """Those whose remainder may go to the vocoder: what is heard before it has been fetched."""
        return [each.clause for each in self._remainders] if self._remainders and not self._rendered else []

    def vocode_remainders(self) -> None:
        remainders, self._remainders = self._remainders, []
        with self._lane.active():
            self._vocode([each.clause for each in remainders], [each.job for each in remainders])

    def _vocode(self, clauses: list[Clause], jobs: list[VocoderJob], *, is_first: bool = False) -> None:
        """On the block's lane, after it: its mel may be let go, since what overwrites its memory comes later."""
        if not jobs:
            return
        begin = self._lane.mark()
        samples = self._vocoder.run(jobs)
        on_host = torch.split(self._lane.to_host(torch.cat(samples)), [len(each) for each in samples])
        mark = self._lane.mark()
        renderings = [clause.rendering for clause in clauses]
        are_final = [job.is_final for job in jobs]
        self._rendered.append(_Rendered(begin, mark, clauses, renderings, list(on_host), are_final, is_first))
        for clause in clauses:
            clause.awaits_samples = True
            self._changed.add(clause.key)
        self._waker.watch(mark)
        self._tally.ran("vocoder", "calls", len(jobs), num_launches=self._vocoder.graphs.num_launches)

    # --- what is under way ------------------------------------------------------------------------------------

    @property
    def num_solving(self) -> int:
        """Launches of Euler steps whose end is not reached."""
        while self._solving and self._solving[0][1].is_reached:
            begin, end = self._solving.popleft()
            self._tally.took("flow", end.seconds_since(begin))
        return len(self._solving)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that has not been fetched."""
        return bool(self._rendered or self._solving or self._remainders)

    @property
    def has_first_blocks_under_way(self) -> bool:
        """Whether some are launched to their end and have not been fetched."""
        return any(rendered.is_first for rendered in self._rendered)

    def wait(self) -> None:
        """Until everything launched is done."""
        for _, end in self._solving:
            end.wait()
        for rendered in self._rendered:
            rendered.mark.wait()

    def fetch_samples(self) -> Iterator[tuple[Clause, npt.NDArray[np.float32]]]:
        """Each clause whose samples [n] have become final, in order; without those that its listener has already.

        Where a clause has two blocks here, it is spoken only with the second: what comes of the first is done before.
        """
        while self._rendered and self._rendered[0].mark.is_reached:
            rendered = self._rendered.popleft()
            rows = zip(rendered.clauses, rendered.renderings, rendered.samples, rendered.are_final, strict=True)
            for clause, rendering, samples, is_final in rows:
                clause.awaits_samples = False
                self._changed.add(clause.key)
                if rendering is None or clause.rendering is not rendering:
                    continue
                num_heard = max(clause.num_samples - rendering.num_samples, 0)  # of these, before it was set aside
                rendering.num_samples += len(samples)
                clause.num_samples = max(clause.num_samples, rendering.num_samples)
                if is_final:
                    clause.state = ClauseState.SPOKEN
                yield clause, samples.numpy()[num_heard:]
            # After the samples, which are waited for.
            self._tally.took("vocoder", rendered.mark.seconds_since(rendered.begin))
