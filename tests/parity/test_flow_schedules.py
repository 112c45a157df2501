"""Any order of calls on both paths: every stream's frames are its own, and every block has exactly its owners."""

from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import ClassVar

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.flow import make_prompt, make_runner, make_tokens, render_alone
from voicegate.engine.flow.backend import BatchesExhausted, BlocksExhausted
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.stream import BlockBatch, BlockStream

# Difference between two runs of equal arithmetic in differently shaped products: 1.2e-6 was seen.
BATCH_ATOL = 5e-6
# Prompts of the voices: a block to share, a phase within the first block, none at all.
PROMPT_SIZES = (30, 13, 0)
NUM_BLOCKS = 9
INDEX = st.integers(0, 11)


@cache
def alone(voice: int, num_tokens: int, seed: int) -> torch.Tensor:
    return render_alone(make_prompt(PROMPT_SIZES[voice], seed=voice), make_tokens(num_tokens, seed=seed))


@dataclass(eq=False)
class Speaker:
    flow: BlockStream
    voice: int
    seed: int
    num_tokens: int
    mels: list[torch.Tensor] = field(default_factory=list)


@dataclass(eq=False)
class Running:
    flow: BlockBatch
    num_rows: int
    read: frozenset[int]  # blocks that were finished when it began


class Schedule(RuleBasedStateMachine):
    """Blocks are few and freed ones hold NaN: whoever reads one that is not its own shows it."""

    cuda: ClassVar[FlowCudaConfig | None] = None

    @initialize()
    def start(self) -> None:
        self.runner = make_runner(num_blocks=NUM_BLOCKS, max_streams=5, cuda=self.cuda)
        self.prepared = [self.runner.prepare(make_prompt(size, seed=voice)) for voice, size in enumerate(PROMPT_SIZES)]
        self.speakers: list[Speaker] = []
        self.batches: list[Running] = []
        self.num_opened = 0

    @precondition(lambda self: len(self.speakers) < 5)
    @rule(voice=st.integers(0, 2), num_tokens=st.integers(1, 70), is_whole=st.booleans())
    def open(self, voice: int, num_tokens: int, is_whole: bool) -> None:
        self.num_opened += 1
        speaker = Speaker(self.runner.open(self.prepared[voice]), voice, self.num_opened, num_tokens)
        self.speakers.append(speaker)
        self._push(speaker, num_tokens if is_whole else num_tokens // 2)

    @precondition(lambda self: any(not speaker.flow.is_finished for speaker in self.speakers))
    @rule(which=INDEX)
    def push_rest(self, which: int) -> None:
        waiting = [speaker for speaker in self.speakers if not speaker.flow.is_finished]
        speaker = waiting[which % len(waiting)]
        self._push(speaker, speaker.num_tokens)

    def _push(self, speaker: Speaker, upto: int) -> None:
        known = len(speaker.flow.tokens) - PROMPT_SIZES[speaker.voice]
        speaker.flow.append(make_tokens(speaker.num_tokens, seed=speaker.seed)[known:upto])
        if upto == speaker.num_tokens:
            speaker.flow.finish()

    @precondition(lambda self: any(speaker.flow.is_ready for speaker in self.speakers))
    @rule(most=st.integers(1, 3))
    def begin(self, most: int) -> None:
        ready = [speaker.flow for speaker in self.speakers if speaker.flow.is_ready][:most]
        free = self.runner.num_free_blocks
        try:
            batch = self.runner.begin(ready)
        except BlocksExhausted:
            assert free < len(ready)
        except BatchesExhausted:
            assert self.runner.num_free_batches == 0
        else:
            read = frozenset(block for stream in ready for block in stream.blocks)
            self.batches.append(Running(batch, len(ready), read))
            return
        assert all(stream.is_ready for stream in ready)

    @precondition(lambda self: self.batches)
    @rule(which=INDEX, num_steps=st.integers(1, 6))
    def advance(self, which: int, num_steps: int) -> None:
        batch = self.batches[which % len(self.batches)]
        for _ in range(num_steps):
            batch.flow.advance()

    @precondition(lambda self: self.batches)
    @rule(which=INDEX)
    def take_result(self, which: int) -> None:
        batch = self.batches.pop(which % len(self.batches))
        while not batch.flow.advance():
            pass
        streams = batch.flow.streams
        owners = {speaker.flow: speaker for speaker in self.speakers}
        for stream, mel in zip(streams, batch.flow.result(), strict=True):
            owners[stream].mels.append(mel)
        for speaker in [speaker for speaker in self.speakers if speaker.flow.is_exhausted]:
            expected = alone(speaker.voice, speaker.num_tokens, speaker.seed)
            torch.testing.assert_close(torch.cat(speaker.mels, dim=1), expected, rtol=0, atol=BATCH_ATOL)
            self._close(speaker)

    @precondition(lambda self: any(batch.flow.streams for batch in self.batches))
    @rule(which=INDEX)
    def drop(self, which: int) -> None:
        running = [batch for batch in self.batches if batch.flow.streams]
        batch = running[which % len(running)].flow
        batch.drop(batch.streams[which % len(batch.streams)])
        self._forget_empty()

    @precondition(lambda self: self.speakers)
    @rule(which=INDEX)
    def close(self, which: int) -> None:
        self._close(self.speakers[which % len(self.speakers)])

    def _close(self, speaker: Speaker) -> None:
        self.runner.close(speaker.flow)
        self.speakers.remove(speaker)
        self._forget_empty()

    def _forget_empty(self) -> None:
        """A batch that everybody left gives its blocks back at once."""
        self.batches = [batch for batch in self.batches if batch.flow.streams]

    @invariant()
    def every_block_has_its_owners(self) -> None:
        held = {block for prepared in self.prepared for block in prepared.blocks}
        held.update(block for speaker in self.speakers for block in speaker.flow.blocks)
        held.update(block for batch in self.batches for block in batch.read)
        num_new = sum(batch.num_rows for batch in self.batches)
        assert self.runner.num_free_blocks == NUM_BLOCKS - len(held) - num_new

    def teardown(self) -> None:
        for prepared in self.prepared:
            self.runner.release(prepared)
        for speaker in list(self.speakers):
            self._close(speaker)
        assert self.runner.num_free_blocks == NUM_BLOCKS


class FixedShapes(Schedule):
    cuda = FlowCudaConfig(frame_buckets=(16, 50, 150), has_graphs=False)


TestPlain = Schedule.TestCase
TestFixedShapes = pytest.mark.skipif(find_spec("triton") is None, reason="the extra `gpu` is for Linux")(
    FixedShapes.TestCase
)
TestPlain.settings = TestFixedShapes.settings = settings(max_examples=6, stateful_step_count=30)
