"""A device and its listeners on a fake clock, driven by `engine.scheduler.decide`: no model, no torch, no sleeping.

Step times are about those of an H200 (bench/results); what matters is that they grow with the batch, an Euler step's
with all its frames, and that a step takes longer beside one of the other lane. LLM and flow share one processor where
`limits.is_concurrent` is false.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.scheduling import decide
from voicegate.engine import units
from voicegate.engine.core.policy import AdvanceBatch, BeginBlocks, Intake, Limits, LlmStep, StreamView
from voicegate.engine.flow.chunking import TOKENS_PER_BLOCK

EULER_STEPS = 10
FIRST_BLOCK_TOKENS = 10  # the rest of it is the prompt's
LOOKAHEAD_TOKENS = 3
LLM_AHEAD_TOKENS = 100
TOKEN_S = 0.04
PREBUFFER_S = 0.08
# Beside a step of the other lane.
LLM_SLOWDOWN = 1.6
FLOW_SLOWDOWN = 1.25


@dataclass
class SimulatedStream:
    """One utterance: text arrives, tokens are decoded, blocks are solved, a listener plays."""

    key: int
    arrives_s: float
    num_tokens: int
    cancelled_at_s: float = math.inf
    max_lead_s: float = 3.0
    stalls: dict[int, float] = field(default_factory=dict)  # decoded tokens -> seconds without text from then on
    tokens: int = 0
    solved: int = 0
    batch: int | None = None
    is_decoding: bool = False
    blocked_until_s: float = 0.0
    first_audio_s: float | None = None
    deadline_s: float | None = None
    underrun_s: float = 0.0  # beyond the stalls of its own text
    is_done: bool = False
    kept_view: StreamView | None = None  # until something of it changes

    def is_live(self, now_s: float) -> bool:
        return self.arrives_s <= now_s < self.cancelled_at_s and not self.is_done

    @property
    def next_block(self) -> int:
        size = TOKENS_PER_BLOCK if self.solved else FIRST_BLOCK_TOKENS
        return min(size, self.num_tokens - self.solved)

    @property
    def block_frames(self) -> int:
        """Frames of the next block, the prompt's among them: below 50 only in the last."""
        num_prompt_tokens = 0 if self.solved else TOKENS_PER_BLOCK - FIRST_BLOCK_TOKENS
        return (num_prompt_tokens + self.next_block) * units.FRAMES_PER_TOKEN

    @property
    def has_block(self) -> bool:
        is_last = self.tokens == self.num_tokens
        needed = self.solved + self.next_block + (0 if is_last else LOOKAHEAD_TOKENS)
        return self.batch is None and self.next_block > 0 and self.tokens >= needed

    def view(self, now_s: float) -> StreamView:
        if self.kept_view is None or self.blocked_until_s > 0.0:  # which ends without a word
            self.kept_view = self._view(now_s)
        return self.kept_view

    def _view(self, now_s: float) -> StreamView:
        can_decode = not self.is_decoding and self.tokens < self.num_tokens and now_s >= self.blocked_until_s
        return StreamView(
            key=self.key,
            waiting_since_s=self.arrives_s,
            deadline_s=self.deadline_s,
            max_lead_s=self.max_lead_s,
            wants_llm=can_decode and self.tokens - self.solved < LLM_AHEAD_TOKENS,
            block_frames=self.block_frames if self.has_block else 0,
            batch=self.batch,
        )

    def begin_token(self) -> None:
        self.is_decoding = True
        self.kept_view = None

    def begin_block(self, batch: int) -> None:
        self.batch = batch
        self.kept_view = None

    def take_token(self, now_s: float) -> None:
        self.kept_view = None
        self.is_decoding = False
        self.tokens += 1
        if self.tokens in self.stalls:
            self.blocked_until_s = now_s + self.stalls[self.tokens]

    def take_block(self, now_s: float) -> None:
        self.kept_view = None
        self.batch = None
        audio_s = self.next_block * TOKEN_S
        self.solved += self.next_block
        if self.deadline_s is None:
            self.first_audio_s = now_s
            self.deadline_s = now_s + PREBUFFER_S
        if not self.stalls:
            self.underrun_s = max(self.underrun_s, now_s - self.deadline_s)
        self.deadline_s = max(self.deadline_s, now_s) + audio_s
        self.is_done = self.solved == self.num_tokens


@dataclass
class Simulation:
    streams: Sequence[SimulatedStream]
    limits: Limits
    now_s: float = 0.0
    llm_until_s: float = 0.0
    flow_until_s: float = 0.0
    num_decisions: int = 0
    begun: list[list[int]] = field(default_factory=list)  # batches of the flow, in order: frames of each block

    def __post_init__(self) -> None:
        self._left = list(self.streams)  # neither done nor cancelled
        self._by_key = {stream.key: stream for stream in self.streams}
        self._decoding: list[SimulatedStream] = []
        self._batches: dict[int, tuple[list[SimulatedStream], int]] = {}
        self._stepping: int | None = None

    def run(self, until_s: float) -> None:
        while self.now_s < until_s:
            self._collect()
            self._left = [each for each in self._left if not each.is_done and each.cancelled_at_s > self.now_s]
            if not self._left:
                return
            live = [stream for stream in self._left if stream.is_live(self.now_s)]
            intake = Intake(
                takes_llm_step=self.llm_until_s <= self.now_s,
                takes_flow_step=self.flow_until_s <= self.now_s,
                is_flow_busy=self.flow_until_s > self.now_s,
                num_new_batches=2 - len(self._batches),
            )
            if not self.limits.is_concurrent and not (intake.takes_llm_step and intake.takes_flow_step):
                self._sleep()
                continue
            decision = decide([stream.view(self.now_s) for stream in live], self.now_s, self.limits, intake)
            self.num_decisions += 1
            if decision.llm is not None:
                self._launch_llm(decision.llm)
            if decision.flow is not None:
                self._launch_flow(decision.flow)
            if decision.is_idle:
                self._sleep()

    def _sleep(self) -> None:
        """To the next thing that can change a decision."""
        later = [self.llm_until_s, self.flow_until_s]
        later += [s.arrives_s for s in self._left] + [s.cancelled_at_s for s in self._left]
        for stream in self._left:
            later.append(stream.blocked_until_s)
            if stream.deadline_s is not None:
                later.append(stream.deadline_s - stream.max_lead_s)
        self.now_s = min((moment for moment in later if moment > self.now_s), default=math.inf)

    def _launch_llm(self, step: LlmStep) -> None:
        self._decoding = [self._by_key[key] for key in step.keys]
        for stream in self._decoding:
            stream.begin_token()
        num_prefill = sum(stream.tokens == 0 for stream in self._decoding)
        step_s = 0.0007 + 0.000003 * len(self._decoding) + 0.0005 * num_prefill
        self.llm_until_s = self.now_s + step_s * (LLM_SLOWDOWN if self.flow_until_s > self.now_s else 1.0)

    def _launch_flow(self, work: BeginBlocks | AdvanceBatch) -> None:
        if isinstance(work, BeginBlocks):
            number = self.num_decisions
            rows = [self._by_key[key] for key in work.keys]
            self._batches[number] = (rows, 0)
            self.begun.append([stream.block_frames for stream in rows])
            for stream in rows:
                stream.begin_block(number)
        else:
            number = work.batch
        rows, _ = self._batches[number]
        self._stepping = number
        step_s = 0.0007 + 0.000002 * sum(stream.block_frames for stream in rows)
        self.flow_until_s = self.now_s + step_s * (FLOW_SLOWDOWN if self.llm_until_s > self.now_s else 1.0)

    def _collect(self) -> None:
        if self._decoding and self.llm_until_s <= self.now_s:
            for stream in self._decoding:
                stream.take_token(self.now_s)
            self._decoding = []
        if self._stepping is not None and self.flow_until_s <= self.now_s:
            rows, num_steps = self._batches[self._stepping]
            self._batches[self._stepping] = (rows, num_steps + 1)
            alive = [stream for stream in rows if stream.is_live(self.now_s)]
            if num_steps + 1 == EULER_STEPS or not alive:
                del self._batches[self._stepping]
                for stream in alive:
                    stream.take_block(self.now_s)
            self._stepping = None
        for number, (rows, _) in list(self._batches.items()):  # cancelled to the last one
            if number != self._stepping and not any(stream.is_live(self.now_s) for stream in rows):
                del self._batches[number]
