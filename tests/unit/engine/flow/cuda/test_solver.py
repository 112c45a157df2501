"""The path of fixed shapes, with torch's operations on a CPU: buffers, padding, and who shares what."""

from dataclasses import replace

import pytest
import torch

from tests.support.flow import drain, make_prompt, make_runner, make_tokens, open_stream, render_alone, render_ready
from tests.unit.engine.flow.cuda.support import EAGER, Bench, Row
from voicegate.engine.flow.backend import BatchesExhausted, BlocksExhausted
from voicegate.engine.flow.cuda.buffers import NUM_FINISHED, START
from voicegate.engine.flow.cuda.config import FlowCudaConfig

# Difference between two runs of equal arithmetic in differently shaped products.
BATCH_ATOL = 5e-6


@pytest.mark.parametrize("prompt_size", [0, 13, 28])
def test_equals_the_plain_path(prompt_size: int) -> None:
    mel = drain(runner := make_runner(cuda=EAGER), open_stream(runner, 61, prompt_size=prompt_size))
    expected = render_alone(make_prompt(prompt_size), make_tokens(61))
    torch.testing.assert_close(mel, expected, rtol=0, atol=BATCH_ATOL)


def test_large_buckets_multiply_8_bit_floats() -> None:
    config = replace(EAGER, product_dtype=torch.float8_e4m3fn, float8_frames=100)
    runner = make_runner(cuda=config)
    alone = render_alone(make_prompt(0), make_tokens(28))[:, :50]
    (small,) = render_ready(runner, [open_stream(runner, 28)])
    torch.testing.assert_close(small, alone, rtol=0, atol=BATCH_ATOL)
    large, _ = render_ready(runner, [open_stream(runner, 28) for _ in range(2)])
    error = (large - alone).square().mean().sqrt() / alone.square().mean().sqrt()
    assert 1e-3 < error < 5e-2


def test_short_blocks_lie_close_and_padding_is_harmless() -> None:
    runner = make_runner(cuda=EAGER)
    streams = [open_stream(runner, size, seed=size) for size in (3, 8, 5)]
    for stream, mel in zip(streams, render_ready(runner, streams), strict=True):
        expected = render_alone(make_prompt(0, seed=len(stream.tokens)), stream.tokens)
        torch.testing.assert_close(mel, expected, rtol=0, atol=BATCH_ATOL)
    assert all(mel.isfinite().all() for mel in render_ready(runner, [open_stream(runner, 25), open_stream(runner, 3)]))


def test_long_contexts_come_first_wherever_their_lines_lie() -> None:
    bench = Bench([Row(1, 50), Row(3, 50), Row(0, 20), Row(3, 16)], num_rows=5, num_lines=140)
    assert bench.batch.rows[:, NUM_FINISHED].tolist() == [3, 3, 1, 0, 0]
    assert bench.batch.rows[:, START].tolist() == [50, 120, 0, 100, 0]


def test_prompts_of_earlier_batches_are_in_no_later_one() -> None:
    """One set of buffers: many prompts, then one at its beginning, then none where the many lay."""
    runner = make_runner(cuda=replace(EAGER, max_batches=1))
    for num_streams in (4, 1):
        streams = [open_stream(runner, 10, prompt_size=20, seed=i) for i in range(num_streams)]
        render_ready(runner, streams)
        for stream in streams:
            runner.close(stream)
    sizes = (25, 28, 20, 25)
    mels = render_ready(runner, [open_stream(runner, size, seed=i) for i, size in enumerate(sizes)])
    for seed, (size, mel) in enumerate(zip(sizes, mels, strict=True)):
        expected = render_alone(make_prompt(0, seed=seed), make_tokens(size, seed=seed))[:, : mel.shape[1]]
        torch.testing.assert_close(mel, expected, rtol=0, atol=BATCH_ATOL)


def test_others_in_the_same_bucket_changes_no_bit() -> None:
    """Same shape, same place: what the other rows hold, or that they are padding, cannot matter."""
    config = replace(EAGER, frame_buckets=(200,))

    def first_of(num_others: int) -> torch.Tensor:
        runner = make_runner(cuda=config)
        streams = [open_stream(runner, 40, prompt_size=30)]
        streams += [open_stream(runner, 55, prompt_size=13 * i, seed=i) for i in range(1, num_others + 1)]
        mels = [render_ready(runner, streams)[0], render_ready(runner, streams)[0]]
        return torch.cat(mels, dim=1)

    alone = first_of(0)
    assert torch.equal(first_of(1), alone)
    assert torch.equal(first_of(3), alone)


def test_two_batches_interleave_and_a_third_is_refused() -> None:
    runner = make_runner(cuda=EAGER)
    first, second, third = (open_stream(runner, 28, seed=i) for i in range(3))
    free_blocks = runner.num_free_blocks
    slow = runner.begin([first])
    for _ in range(4):
        slow.advance()
    assert runner.num_free_batches == 1
    urgent = runner.begin([second])
    with pytest.raises(BatchesExhausted, match="all 2 batches"):
        runner.begin([third])
    assert third.is_ready
    assert runner.num_free_blocks == free_blocks - 2
    while not urgent.advance():
        slow.advance()
    while not slow.advance():
        pass
    mels = [*slow.result(), *urgent.result()]
    assert runner.num_free_batches == 2
    for seed, mel in enumerate(mels):
        expected = render_alone(make_prompt(0, seed=seed), make_tokens(28, seed=seed))[:, :50]
        torch.testing.assert_close(mel, expected, rtol=0, atol=BATCH_ATOL)


def test_a_batch_that_everybody_left_frees_its_buffers_at_once() -> None:
    runner = make_runner(cuda=EAGER)
    streams = [open_stream(runner, 28, seed=i) for i in range(2)]
    batch = runner.begin(streams)
    batch.advance()
    batch.drop(streams[0])
    assert runner.num_free_batches == 1
    runner.close(streams[1])
    assert runner.num_free_batches == 2
    assert batch.result() == []
    assert runner.num_free_batches == 2
    assert drain(runner, streams[0]).isfinite().all()


def test_what_is_refused_changes_nothing() -> None:
    runner = make_runner(cuda=replace(EAGER, frame_buckets=(50, 100)), num_blocks=3)
    streams = [open_stream(runner, 28, seed=i) for i in range(4)]
    with pytest.raises(ValueError, match="3 blocks of 150 frames do not fit"):
        runner.begin(streams[:3])
    assert (runner.num_free_blocks, runner.num_free_batches) == (3, 2)
    batch = runner.begin(streams[:2])
    with pytest.raises(BlocksExhausted):
        runner.begin(streams[2:])
    assert (runner.num_free_blocks, runner.num_free_batches) == (1, 1)
    assert streams[2].is_ready
    while not batch.advance():
        pass
    assert all(mel.isfinite().all() for mel in batch.result())


def test_graphs_need_a_cuda_device() -> None:
    with pytest.raises(ValueError, match="has_graphs=False"):
        make_runner(cuda=FlowCudaConfig())


def test_every_bucket_runs_on_padding_alone() -> None:
    runner = make_runner(cuda=replace(EAGER, frame_buckets=(16, 50)))
    steps: list[None] = []
    runner.graphs.compile(lambda: steps.append(None))
    assert len(steps) == runner.graphs.num_buckets == 4, "begin and step, in one of the two sets of buffers"
    runner.graphs.capture()
    assert runner.graphs.num_graphs == 0
    assert drain(runner, open_stream(runner, 10)).isfinite().all()
