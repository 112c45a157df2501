"""Step-Audio2's flow for many streams: each as if alone, whatever runs beside it and whoever leaves."""

import numpy as np
import pytest
import torch

from tests.support.stepaudio2 import GoldenFlow, flow_model, golden_flow, normal
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow.stream import ChunkStream
from voicegate.engine.flow.backend import BlocksExhausted, FlowPrompt, StreamsExhausted, StreamTooLong

SCHEDULE = (4, 7, 9)


def prompt_of(num_tokens: int) -> FlowPrompt:
    ids = torch.from_numpy(np.random.default_rng(num_tokens).integers(0, 6561, num_tokens))
    return FlowPrompt(ids, normal(f"prompt.{num_tokens}", (2 * num_tokens, 80)), normal("spk", (192,)))


def tokens_of(seed: int, num_tokens: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 6561, num_tokens).tolist()


def opened(flow: GoldenFlow, num_prompt_tokens: int, tokens: list[int]) -> ChunkStream:
    stream = flow.runner.open(flow.runner.prepare(prompt_of(num_prompt_tokens)))
    stream.append(tokens)
    stream.finish()
    return stream


def drained(flow: GoldenFlow, stream: ChunkStream) -> torch.Tensor:
    mels = []
    while stream.is_ready:
        mels += flow.render([stream])
    assert stream.is_exhausted
    return torch.cat(mels, dim=1)


STREAMS = ((13, 1, 30), (0, 2, 12), (20, 3, 5), (2, 4, 41))  # prompt tokens, seed, tokens


def alone(num_prompt_tokens: int, seed: int, num_tokens: int) -> torch.Tensor:
    flow = golden_flow(SCHEDULE)
    mel = drained(flow, opened(flow, num_prompt_tokens, tokens_of(seed, num_tokens)))
    assert mel.shape == (units.NUM_MELS, 2 * num_tokens)
    return mel


def test_blocks_are_used_again_and_nothing_leaks() -> None:
    """Free blocks are NaN, so whoever reads one shows it."""
    flow = golden_flow(SCHEDULE, num_blocks=20)
    prompt = flow.runner.prepare(prompt_of(13))
    num_free, expected = flow.memory.num_free, alone(13, 1, 30)
    for seed in (7, 1):
        stream = flow.runner.open(prompt)
        stream.append(tokens_of(seed, 30))
        stream.finish()
        mel = drained(flow, stream)
        assert flow.memory.num_free == num_free - 6
        flow.runner.close(stream)
        flow.runner.close(stream)
        assert flow.memory.num_free == num_free
    assert torch.equal(mel, expected)
    flow.runner.release(prompt)
    assert flow.memory.num_free == 20


def test_who_leaves_a_batch_changes_nothing_for_others() -> None:
    flow = golden_flow(SCHEDULE)
    leaving, staying = (opened(flow, prompt, tokens_of(seed, count)) for prompt, seed, count in STREAMS[:2])
    before = flow.memory.num_free
    batch = flow.runner.begin([leaving, staying])
    for step in range(9):
        assert not batch.advance()
        if step == 4:
            flow.runner.close(leaving)
            new_request = opened(flow, 20, tokens_of(3, 5))  # takes what is free meanwhile
    assert batch.advance()
    first, *more = batch.result()
    assert not more
    mel = torch.cat((first, drained(flow, staying)), dim=1)
    torch.testing.assert_close(mel, alone(*STREAMS[1]), rtol=0, atol=2e-5)
    torch.testing.assert_close(drained(flow, new_request), alone(20, 3, 5), rtol=0, atol=2e-5)
    flow.runner.close(staying)
    flow.runner.close(new_request)
    assert flow.memory.num_free == before - 4  # the new request's prompt


def test_a_batch_that_everybody_has_left_gives_its_blocks_back() -> None:
    flow = golden_flow(SCHEDULE)
    prompt = flow.runner.prepare(prompt_of(13))
    num_free = flow.memory.num_free
    stream = flow.runner.open(prompt)
    stream.append(tokens_of(1, 30))
    batch = flow.runner.begin([stream])
    flow.runner.release(prompt)  # its blocks stay while a stream is behind it
    assert flow.memory.num_free < num_free
    flow.runner.close(stream)
    assert batch.advance()
    assert batch.result() == []
    assert flow.memory.num_free == 120


def test_what_is_asked_of_a_stream() -> None:
    flow = golden_flow(SCHEDULE)
    stream = flow.runner.open(flow.runner.prepare(prompt_of(4)))
    assert (stream.num_missing_tokens, stream.is_ready, stream.next_num_frames) == (7, False, 0)
    stream.append(tokens_of(1, 7))
    assert (stream.num_missing_tokens, stream.is_ready, stream.next_num_frames) == (0, True, 8)
    batch = flow.runner.begin([stream])
    assert (stream.is_ready, stream.num_missing_tokens) == (False, 4 + 7 + 3 - 7)
    while not batch.advance():
        pass
    batch.result()
    assert (stream.num_own_blocks, stream.num_missing_tokens, stream.is_exhausted) == (1, 7, False)
    stream.finish()
    assert (stream.is_ready, stream.next_num_frames, stream.next_num_blocks) == (True, 6, 1)
    flow.render([stream])
    assert stream.is_exhausted
    with pytest.raises(ValueError, match="after the end"):
        stream.append([1])


def test_a_stream_without_speech_is_exhausted_at_its_end() -> None:
    flow = golden_flow(SCHEDULE)
    stream = flow.runner.open(flow.runner.prepare(prompt_of(0)))
    stream.finish()
    assert (stream.is_exhausted, stream.is_ready) == (True, False)


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    flow = golden_flow(SCHEDULE, num_blocks=6, max_streams=2)
    stream = flow.runner.open(flow.runner.prepare(prompt_of(25)))
    stream.append(tokens_of(1, 30))
    with pytest.raises(ValueError, match="not in the flow's table of 6561"):
        stream.append([3, 6561])
    with pytest.raises(StreamTooLong, match="5000"):
        stream.append([0] * 2500)
    assert len(stream.tokens) == 30
    flow.render([stream])
    with pytest.raises(BlocksExhausted):
        flow.runner.begin([stream])
    assert (stream.is_ready, stream.num_own_blocks, flow.memory.num_free) == (True, 1, 0)
    with pytest.raises(ValueError, match="different streams that are ready"):
        flow.runner.begin([stream, stream])
    flow.runner.open(flow.runner.prepare(prompt_of(0)))
    with pytest.raises(StreamsExhausted):
        flow.runner.open(stream.prompt)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (FlowPrompt(torch.zeros(3, dtype=torch.int64), torch.zeros(5, 80), torch.zeros(192)), r"needs mel \[6, 80\]"),
        (FlowPrompt(torch.zeros(3, dtype=torch.int64), torch.zeros(6, 80), torch.zeros(191)), r"not \[192\]"),
        (FlowPrompt(torch.tensor([7000]), torch.zeros(2, 80), torch.zeros(192)), "table of 6561"),
    ],
)
def test_unfit_prompts(prompt: FlowPrompt, message: str) -> None:
    flow = golden_flow()
    with pytest.raises(ValueError, match=message):
        flow.runner.prepare(prompt)
    assert flow.memory.num_free == 120


@pytest.mark.parametrize("num_steps", [0, 1, 9])
def test_a_prompt_that_is_given_up_gives_all_its_blocks_back(num_steps: int) -> None:
    flow = golden_flow()
    free = flow.memory.num_free
    rendering = flow.runner.begin_prompt(prompt_of(13))
    for _ in range(num_steps):
        assert not rendering.advance()
    rendering.close()
    rendering.close()
    assert flow.memory.num_free == free


def test_a_released_prompt_takes_no_more_streams() -> None:
    flow = golden_flow()
    prompt = flow.runner.prepare(prompt_of(4))
    flow.runner.release(prompt)
    flow.runner.release(prompt)
    with pytest.raises(ValueError, match="released"):
        flow.runner.open(prompt)


def test_room_is_told_in_blocks_of_ten_frames_and_batches_in_frames() -> None:
    flow = golden_flow()
    assert [flow.runner.num_speech_blocks(tokens) for tokens in (0, 5, 6)] == [0, 1, 2]
    size = flow.runner.batch_size(4)
    assert (size.num_rows, size.num_frames) == (4, 200)
    assert flow.runner.batch_size(1).num_frames == 2 * (50 + 3)
    assert flow_model().max_frames == 5000


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "limit"),
    [
        (torch.float32, torch.float8_e4m3fn, 2e-3),
        (torch.bfloat16, torch.bfloat16, 1e-2),
        (torch.bfloat16, torch.float8_e4m3fn, 1e-2),
    ],
)
def test_lower_precision_is_close(dtype: torch.dtype, kv_dtype: torch.dtype, limit: float) -> None:
    """Types that a GPU computes in, and with NaN in free blocks, too."""
    flow = golden_flow(SCHEDULE, dtype=dtype, kv_dtype=kv_dtype)
    assert flow.memory.estimator.dtype == kv_dtype
    mel = drained(flow, opened(flow, 13, tokens_of(1, 30)))
    assert mel.dtype == torch.float32
    error = (mel - alone(13, 1, 30)).abs()
    assert 1e-5 < error.mean() < limit
