"""Whatever the arrival of tokens and the others in a batch, a stream's frames are those of the whole at once."""

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.flow import (
    PARITY_ATOL,
    drain,
    make_prompt,
    make_runner,
    make_tokens,
    offline,
    render_alone,
    render_ready,
)
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.chunking import FirstBlocks
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockStream
from voicegate.engine.flow.torch.offline import render_offline

# Difference between two runs of equal arithmetic in differently shaped products.
BATCH_ATOL = 5e-6
# Phases of the prompt's end within a block; 26 to 28 and 50 leave a block of nothing but prompt to the stream.
PROMPT_SIZES = (0, 2, 13, 25, 27, 28, 30, 50, 65)


def assert_near(actual: torch.Tensor, expected: torch.Tensor, *, atol: float = BATCH_ATOL) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@settings(max_examples=12)
@given(
    prompt_size=st.sampled_from(PROMPT_SIZES),
    arrivals=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    data=st.data(),
)
def test_any_arrival_equals_all_at_once_and_offline(prompt_size: int, arrivals: list[int], data: st.DataObject) -> None:
    prompt, tokens = make_prompt(prompt_size), make_tokens(sum(arrivals))
    runner = make_runner()
    stream = runner.open(runner.prepare(prompt))
    mels, start = [], 0
    for size in arrivals:
        stream.append(tokens[start : start + size])
        start += size
        if data.draw(st.booleans(), label="render now"):
            mels.append(drain(runner, stream))
    stream.finish()
    mels.append(drain(runner, stream))
    mel = torch.cat(mels, dim=1)
    assert stream.is_exhausted
    assert mel.shape[1] == 2 * len(tokens)
    assert_near(mel, render_alone(prompt, tokens))
    if tokens:
        expected = offline(runner, prompt, tokens, streaming=True, is_final=True)
        assert_near(mel, expected, atol=PARITY_ATOL)


@pytest.mark.parametrize(
    ("begins_short", "num_first"),
    [(False, 10), (True, 5)],
)
@pytest.mark.parametrize("prompt_size", [1, 4, *range(25, 50)])
def test_behind_a_lead_in_of_any_length_it_equals_offline_behind_the_same(
    prompt_size: int, begins_short: bool, num_first: int
) -> None:
    prompt, tokens = make_prompt(prompt_size), make_tokens(30)
    runner = make_runner(first_blocks=FirstBlocks(usual=10, short=5))
    stream = runner.open(runner.prepare(prompt), begins_short=begins_short)
    stream.append(tokens[: num_first + 3])
    first = drain(runner, stream)
    assert first.shape[1] == 2 * num_first, "the first block does not wait for more"
    stream.append(tokens[num_first + 3 :])
    stream.finish()
    mel = torch.cat((first, drain(runner, stream)), dim=1)
    expected = render_offline(runner.model, stream.prompt, tokens, streaming=True, is_final=True)
    assert_near(mel, expected, atol=PARITY_ATOL)


class Party:
    """Streams of different voices, phases and histories on one runner, rendered in random batches."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.runner = make_runner(num_blocks=60)
        self.prompts = [make_prompt(size, seed=i) for i, size in enumerate((0, 13, 27, 65))]
        self.prepared = [self.runner.prepare(prompt) for prompt in self.prompts]
        self.live: list[tuple[BlockStream, int, list[int], int]] = []  # stream, prompt, all tokens, tokens pushed
        self.mels: dict[BlockStream, list[torch.Tensor]] = {}
        self.num_opened = 0

    def open(self) -> None:
        which = self.random.randrange(len(self.prompts))
        tokens = make_tokens(self.random.randint(1, 70), seed=self.num_opened)
        self.num_opened += 1
        stream = self.runner.open(self.prepared[which])
        self.mels[stream] = []
        self.live.append((stream, which, tokens, 0))

    def push(self) -> None:
        for i, (stream, which, tokens, pushed) in enumerate(self.live):
            if not stream.is_finished:
                upto = min(pushed + self.random.randint(5, 50), len(tokens))
                stream.append(tokens[pushed:upto])
                self.live[i] = (stream, which, tokens, upto)
                if upto == len(tokens):
                    stream.finish()

    def render_some(self) -> None:
        """One batch of some ready streams; some of them leave it on the way, to come back or never."""
        ready = [stream for stream, *_ in self.live if stream.is_ready]
        if not ready:
            return
        batch = self.runner.begin(self.random.sample(ready, self.random.randint(1, len(ready))))
        while not batch.advance():
            chance = self.random.random()
            if chance < 0.05:
                batch.drop(self.random.choice(batch.streams))
            elif chance < 0.1:
                self.cancel(self.random.choice(batch.streams))
            elif chance < 0.15:
                self.open()
        streams = batch.streams
        for stream, mel in zip(streams, batch.result(), strict=True):
            self.mels[stream].append(mel)

    def cancel(self, stream: BlockStream) -> None:
        self.runner.close(stream)
        self.live = [entry for entry in self.live if entry[0] is not stream]

    def check_finished(self) -> int:
        """Compare and close the streams that are through; how many."""
        through = [entry for entry in self.live if entry[0].is_exhausted]
        for stream, which, tokens, _ in through:
            mel = torch.cat(self.mels.pop(stream), dim=1)
            assert_near(mel, render_alone(self.prompts[which], tokens))
            self.runner.close(stream)
        self.live = [entry for entry in self.live if not entry[0].is_exhausted]
        return len(through)


@settings(max_examples=4)
@given(seed=st.integers(0, 10_000))
def test_others_change_nothing(seed: int) -> None:
    party = Party(seed)
    num_free = party.runner.num_free_blocks
    num_checked = num_rounds = 0
    while num_rounds < 14 or not num_checked:  # of some seeds nobody is through by then
        num_rounds += 1
        if len(party.live) < 4:
            party.open()
        party.push()
        party.render_some()
        num_checked += party.check_finished()
    for stream, *_ in party.live:
        party.runner.close(stream)
    assert party.runner.num_free_blocks == num_free


def open_filled(runner: FlowRunner, prompt: FlowPrompt, tokens: Sequence[int]) -> BlockStream:
    stream = runner.open(runner.prepare(prompt))
    stream.append(tokens)
    stream.finish()
    return stream


def test_cancel_in_a_batch_leaves_the_others_bits_alone() -> None:
    def run(cancel_after: int | None) -> torch.Tensor:
        runner = make_runner()
        kept = open_filled(runner, make_prompt(13), make_tokens(20))
        gone = open_filled(runner, make_prompt(28, seed=1), make_tokens(40, seed=1))
        batch = runner.begin([gone, kept])
        num_steps = 0
        while not batch.advance():
            num_steps += 1
            if num_steps == cancel_after:
                runner.close(gone)
        return batch.result()[-1]

    assert torch.equal(run(cancel_after=4), run(cancel_after=None))


def test_dropped_stream_can_begin_again() -> None:
    runner = make_runner()
    prompt, tokens = make_prompt(13), make_tokens(60)
    stream = open_filled(runner, prompt, tokens)
    first = render_ready(runner, [stream])
    batch = runner.begin([stream])
    for _ in range(6):
        batch.advance()
    batch.drop(stream)
    assert batch.is_done
    mel = torch.cat((*first, drain(runner, stream)), dim=1)
    assert_near(mel, render_alone(prompt, tokens))


def test_reused_blocks_leak_nothing() -> None:
    """A pool just large enough for one stream: every later one lives on the blocks of the one before."""
    runner = make_runner(num_blocks=4, max_streams=1)
    for seed in range(3):
        prompt, tokens = make_prompt(30, seed=seed), make_tokens(65 - 10 * seed, seed=seed)
        prepared = runner.prepare(prompt)
        stream = runner.open(prepared)
        stream.append(tokens)
        stream.finish()
        assert_near(drain(runner, stream), render_alone(prompt, tokens))
        runner.close(stream)
        runner.release(prepared)
        assert runner.num_free_blocks == 4
