"""Chunks in fixed buffers, on a CPU: the same frames as in tensors of their own size. tests/gpu has the graphs."""

from collections.abc import Callable

import pytest
import torch

from tests.support.stepaudio2 import GoldenFlow, golden_flow
from tests.unit.engine.families.stepaudio2.test_flow_runner import (
    SCHEDULE,
    STREAMS,
    alone,
    drained,
    opened,
    prompt_of,
    tokens_of,
)
from voicegate.engine.families.stepaudio2.flow.bucket_solver import BucketConfig, BucketSolver
from voicegate.engine.families.stepaudio2.flow.chunking import ChunkSchedule
from voicegate.engine.flow.backend import BatchesExhausted

BUCKETS = BucketConfig(
    token_buckets=ChunkSchedule(SCHEDULE).longest_chunks(lookahead=3),
    row_buckets=(1, 2, 4),
    known_buckets=(40, 100),
    has_graphs=False,
)


def bucketed(schedule: tuple[int, ...] = SCHEDULE) -> GoldenFlow:
    return golden_flow(schedule, buckets=BUCKETS)


@pytest.mark.parametrize("make", [golden_flow, bucketed])
def test_streams_of_any_age_are_what_they_are_alone(make: Callable[..., GoldenFlow]) -> None:
    """Buffers are full of what other batches left there; 13 + 30 and 2 + 41 tokens outgrow the first bucket."""
    flow = make(SCHEDULE)
    streams = [opened(flow, prompt, tokens_of(seed, count)) for prompt, seed, count in STREAMS]
    mels: list[list[torch.Tensor]] = [[] for _ in STREAMS]
    for early in range(2):  # some are further when others begin
        mels[early] += flow.render([streams[early]])
    while ready := [index for index, stream in enumerate(streams) if stream.is_ready]:
        for index, mel in zip(ready, flow.render([streams[index] for index in ready]), strict=True):
            mels[index].append(mel)
    for parts, each in zip(mels, STREAMS, strict=True):
        torch.testing.assert_close(torch.cat(parts, dim=1), alone(*each), rtol=0, atol=2e-5)


def test_two_batches_run_interleaved_and_a_third_waits() -> None:
    flow = bucketed()
    first, second, third = (opened(flow, prompt, tokens_of(seed, count)) for prompt, seed, count in STREAMS[:3])
    batches = [flow.runner.begin([first]), flow.runner.begin([second])]
    num_free = flow.memory.num_free
    assert flow.runner.num_free_batches == 0
    with pytest.raises(BatchesExhausted):
        flow.runner.begin([third])
    assert flow.memory.num_free == num_free
    mels = []
    for _ in range(10):
        is_done = [batch.advance() for batch in batches]
    assert all(is_done)
    for batch, stream in zip(batches, (first, second), strict=True):
        mels.append(torch.cat((*batch.result(), drained(flow, stream)), dim=1))
    assert flow.runner.num_free_batches == 2
    for mel, each in zip(mels, STREAMS, strict=False):
        torch.testing.assert_close(mel, alone(*each), rtol=0, atol=2e-5)


def test_what_no_bucket_holds_is_solved_all_the_same() -> None:
    """More than 100 frames of prompt and speech."""
    flow = bucketed()
    stream = opened(flow, 30, tokens_of(9, 40))
    torch.testing.assert_close(drained(flow, stream), alone(30, 9, 40), rtol=0, atol=2e-5)
    assert flow.runner.num_free_batches == 2


def test_padding_alone_leaves_everything_as_it_was() -> None:
    flow = bucketed()
    stream = opened(flow, *[STREAMS[0][0]], tokens_of(1, 30))
    (first,) = flow.render([stream])
    flow.runner.graphs.compile()
    flow.runner.graphs.capture()
    assert flow.runner.graphs.num_buckets == 2 * len(BUCKETS.shapes) == 2 * 3 * 3 * 2
    mel = torch.cat((first, drained(flow, stream)), dim=1)
    torch.testing.assert_close(mel, alone(13, 1, 30), rtol=0, atol=2e-5)


def test_a_batch_has_no_more_rows_than_the_largest_bucket() -> None:
    assert bucketed().runner.batch_size(30).num_rows == 4
    flow = bucketed()
    prompt = flow.runner.prepare(prompt_of(2))
    streams = [flow.runner.open(prompt) for _ in range(5)]
    for stream in streams:
        stream.append(tokens_of(1, 7))
    with pytest.raises(ValueError, match="do not fit in the largest bucket"):
        flow.runner.begin(streams)


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match=r"row_buckets are \(4, 2\)"):
        BucketConfig(token_buckets=(5,), row_buckets=(4, 2))
    flow = golden_flow()
    with pytest.raises(ValueError, match="CUDA graphs were asked for on cpu"):
        BucketSolver(flow.model, flow.memory, BucketConfig(token_buckets=(5,)))
