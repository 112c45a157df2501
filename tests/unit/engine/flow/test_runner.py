"""Streams, prompts and batches as the engine's loop handles them: readiness, limits, refusals, who owns which block."""

from dataclasses import replace

import pytest
import torch

from tests.support.flow import (
    CPU,
    NOISE_FRAMES,
    drain,
    flow_config,
    flow_state,
    make_prompt,
    make_runner,
    make_tokens,
    open_stream,
    prepare_beside,
    render_ready,
)
from voicegate.engine.flow.backend import (
    BlocksExhausted,
    FlowPrompt,
    StreamsExhausted,
    StreamTooLong,
)
from voicegate.engine.flow.chunking import FirstBlocks
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockStream

TEN = FirstBlocks(usual=10, short=10)
TWO = FirstBlocks(usual=10, short=6)


def begun(runner: FlowRunner, prompt_size: int, num_tokens: int = 0, *, finish: bool = False) -> BlockStream:
    return open_stream(runner, num_tokens, prompt_size=prompt_size, finish=finish)


@pytest.mark.parametrize("num_prompt_tokens", [69, 6])
def test_a_prompt_is_led_in_by_its_own_end_and_kept_whole(num_prompt_tokens: int) -> None:
    whole = make_prompt(num_prompt_tokens)
    prepared = make_runner(first_blocks=TEN).prepare(whole)
    num_lead_in = len(prepared.tokens) - num_prompt_tokens
    looped = whole.speech_ids.repeat(4)[-len(prepared.tokens) :]
    assert prepared.tokens == tuple(looped.tolist())
    assert torch.equal(prepared.mel, whole.mel.repeat(4, 1)[-2 * len(prepared.tokens) :])
    assert torch.equal(prepared.mel[2 * num_lead_in :], whole.mel)


def test_a_voice_without_a_prompt_begins_with_a_whole_block() -> None:
    prepared = make_runner(first_blocks=TWO).prepare(make_prompt(0))
    assert (prepared.tokens, prepared.first_block_tokens, prepared.layouts) == ((), 25, [prepared])


@pytest.mark.parametrize("num_prompt_tokens", [1, 7, 19, 25, 65])
def test_streams_with_other_first_blocks_stand_behind_layouts_of_their_own(num_prompt_tokens: int) -> None:
    runner = make_runner(first_blocks=TWO)
    prepared = runner.prepare(make_prompt(num_prompt_tokens))
    assert prepared.first_block_tokens == 10
    streams = {
        num_tokens: runner.open(prepared, begins_short=begins_short)
        for begins_short, num_tokens in ((False, 10), (True, 6))
    }
    for num_tokens, stream in streams.items():
        stream.append(make_tokens(num_tokens + 2))
        assert not stream.is_ready
        stream.append([0])
        assert stream.is_ready
        assert stream.num_own_blocks == 0
    mels = render_ready(runner, [*streams.values()])
    assert [mel.shape[1] for mel in mels] == [20, 12]
    assert [stream.num_own_blocks for stream in streams.values()] == [1, 1]


def test_all_layouts_are_held_and_given_back_together() -> None:
    runner = make_runner(first_blocks=TWO)
    num_free = runner.num_free_blocks
    prepared = runner.prepare(make_prompt(65))
    assert prepared.num_blocks == num_free - runner.num_free_blocks == 2 + 2
    assert prepared.num_blocks <= runner.num_prompt_blocks(65)
    stream = runner.open(prepared, begins_short=True)
    runner.release(prepared)
    assert runner.num_free_blocks < num_free, "whoever speaks keeps what it stands behind"
    runner.close(stream)
    assert runner.num_free_blocks == num_free
    with pytest.raises(ValueError, match="released"):
        runner.open(prepared, begins_short=True)


@pytest.mark.parametrize("begins_short", [False, True])
def test_where_one_layout_is_prepared_all_stand_behind_it(begins_short: bool) -> None:
    runner = make_runner(first_blocks=TEN)
    prepared = runner.prepare(make_prompt(65))
    assert prepared.layouts == [prepared]
    assert runner.open(prepared, begins_short=begins_short).num_missing_tokens == 13


# --- when a block is ready --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt_size", "needed", "num_frames"),
    [
        (0, 28, 50),
        (2, 26, 46),
        (15, 13, 20),
        (25, 28, 50),  # the prompt's own block lacks lookahead: it comes first, see below
        (28, 25, 44),
        (65, 13, 20),
    ],
)
def test_first_speech_needs_its_tokens_and_three_more(prompt_size: int, needed: int, num_frames: int) -> None:
    runner = make_runner()
    stream = begun(runner, prompt_size)
    tokens = make_tokens(needed)
    stream.append(tokens[:-1])
    assert drain(runner, stream).shape[1] == 0
    assert not stream.is_ready
    stream.append(tokens[-1:])
    assert stream.is_ready
    assert stream.next_num_frames - stream.next_num_prompt_frames == num_frames
    (mel,) = render_ready(runner, [stream])
    assert mel.shape == (80, num_frames)
    assert not stream.is_ready


@pytest.mark.parametrize(("prompt_size", "needed"), [(25, 3), (26, 2), (27, 1), (52, 1)])
def test_a_block_of_prompt_alone_waits_for_its_lookahead(prompt_size: int, needed: int) -> None:
    runner = make_runner()
    stream = begun(runner, prompt_size, needed - 1)
    assert not stream.is_ready
    stream.append([1])
    assert stream.is_ready
    assert stream.next_num_frames == stream.next_num_prompt_frames
    (mel,) = render_ready(runner, [stream])
    assert mel.shape == (80, 0)


@pytest.mark.parametrize("prompt_size", [0, 13, 25, 30])
@pytest.mark.parametrize("num_tokens", [1, 12, 25, 37])
def test_finish_renders_every_frame(prompt_size: int, num_tokens: int) -> None:
    runner = make_runner()
    stream = begun(runner, prompt_size, num_tokens)
    before = drain(runner, stream).shape[1]
    stream.finish()
    assert stream.is_ready
    assert not stream.is_exhausted
    assert before + drain(runner, stream).shape[1] == 2 * num_tokens
    assert stream.is_exhausted
    assert not stream.is_ready


@pytest.mark.parametrize("prompt_size", [0, 13, 25])
def test_a_stream_without_speech_is_exhausted_when_finished(prompt_size: int) -> None:
    stream = begun(make_runner(), prompt_size)
    assert not stream.is_exhausted
    stream.finish()
    assert stream.is_exhausted
    assert not stream.is_ready


# --- what is refused --------------------------------------------------------------------------------------


def test_tokens_outside_the_table_are_refused_and_change_nothing() -> None:
    stream = begun(make_runner(), 0, 5)
    with pytest.raises(ValueError, match="6561 is not in the flow's table"):
        stream.append([1, 6561])
    assert len(stream.tokens) == 5
    stream.append([-1])
    assert stream.tokens[-1] == 0


def test_tokens_after_the_end_are_refused() -> None:
    runner = make_runner()
    finished = begun(runner, 0, 5, finish=True)
    closed = begun(runner, 0)
    runner.close(closed)
    for stream in (finished, closed):
        with pytest.raises(ValueError, match="after the end"):
            stream.append([1])


def test_the_noise_buffer_is_the_longest_stream() -> None:
    runner = make_runner()
    stream = begun(runner, 30)
    room = NOISE_FRAMES // 2 - 30
    stream.append(make_tokens(room))
    with pytest.raises(StreamTooLong, match=f"{NOISE_FRAMES + 2} frames, the flow's noise {NOISE_FRAMES}"):
        stream.append([1])
    stream.finish()
    assert drain(runner, stream).shape[1] == 2 * room
    with pytest.raises(StreamTooLong, match="prompt"):
        runner.prepare(make_prompt(NOISE_FRAMES // 2 + 1))


def test_streams_are_limited() -> None:
    runner = make_runner(max_streams=2)
    prepared = runner.prepare(make_prompt(0))
    first, _ = runner.open(prepared), runner.open(prepared)
    with pytest.raises(StreamsExhausted, match="all 2 streams"):
        runner.open(prepared)
    runner.close(first)
    runner.close(first)
    runner.open(prepared)
    with pytest.raises(StreamsExhausted):
        runner.open(prepared)


def test_prompts_are_checked() -> None:
    runner = make_runner()
    prompt = make_prompt(10)
    for broken, message in (
        (replace(prompt, mel=prompt.mel[:-1]), r"10 tokens needs mel \[20, 80\]"),
        (replace(prompt, embedding=prompt.embedding[:-1]), r"embedding is \[191\]"),
        (replace(prompt, speech_ids=prompt.speech_ids + 6561), "not in the flow's table"),
    ):
        with pytest.raises(ValueError, match=message):
            runner.prepare(broken)


def test_a_batch_takes_streams_that_are_ready_once_each() -> None:
    runner = make_runner()
    ready, waiting = begun(runner, 0, 28), begun(runner, 0, 27)
    for streams in ([], [waiting], [ready, waiting], [ready, ready]):
        with pytest.raises(ValueError, match="that are ready"):
            runner.begin(streams)
    batch = runner.begin([ready])
    assert not ready.is_ready
    with pytest.raises(ValueError, match="that are ready"):
        runner.begin([ready])
    with pytest.raises(RuntimeError, match="steps to run"):
        batch.result()


def test_noise_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="multiple of 50"):
        FlowModel(flow_config(), flow_state(), device=CPU, dtype=torch.float32, noise=torch.zeros(80, 120))


# --- who owns which block ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("prompt_size", "num_blocks"), [(0, 0), (24, 0), (27, 0), (28, 1), (52, 1), (53, 2)])
def test_complete_prompt_blocks_are_shared(prompt_size: int, num_blocks: int) -> None:
    runner = make_runner()
    free = runner.num_free_blocks
    prepared = runner.prepare(make_prompt(prompt_size))
    assert len(prepared.blocks) == num_blocks
    streams = [runner.open(prepared) for _ in range(3)]
    assert runner.num_free_blocks == free - num_blocks
    assert all(tuple(stream.blocks) == prepared.blocks for stream in streams)


def test_a_prompt_is_the_same_whatever_runs_between_its_steps() -> None:
    runner = make_runner()
    stream = begun(runner, 10, num_tokens=80)
    prepared = [prepare_beside(runner, make_prompt(60), stream), runner.prepare(make_prompt(60))]
    assert [each.num_blocks for each in prepared] == [2, 2]
    assert len(stream.blocks) > 0, "it has run between them"
    streams = [runner.open(each) for each in prepared]
    for each in streams:
        each.append(make_tokens(50))
    beside, alone = (drain(runner, each) for each in streams)
    assert torch.equal(beside, alone)


@pytest.mark.parametrize(
    ("first_blocks", "num_tokens", "num_blocks", "num_steps"),
    [
        *((FirstBlocks(), 60, 2, num_steps) for num_steps in (0, 1, 10, 15)),
        *((TWO, 65, 4, num_steps) for num_steps in (0, 1, 10, 15, 25, 35)),
    ],
)
def test_a_prompt_that_is_given_up_gives_the_blocks_of_all_its_layouts_back(
    first_blocks: FirstBlocks, num_tokens: int, num_blocks: int, num_steps: int
) -> None:
    runner = make_runner(first_blocks=first_blocks)
    free = runner.num_free_blocks
    rendering = runner.begin_prompt(make_prompt(num_tokens))
    assert runner.num_free_blocks == free - num_blocks, "all are its own from the beginning"
    for _ in range(num_steps):
        assert not rendering.advance()
    rendering.close()
    rendering.close()
    assert runner.num_free_blocks == free


def test_a_prompt_without_room_for_all_of_it_holds_nothing() -> None:
    runner = make_runner(num_blocks=1)
    with pytest.raises(BlocksExhausted):
        runner.begin_prompt(make_prompt(60))
    assert runner.num_free_blocks == 1


def test_prompt_blocks_live_as_long_as_their_last_user() -> None:
    runner = make_runner()
    free = runner.num_free_blocks
    prepared = runner.prepare(make_prompt(60))
    stream = runner.open(prepared)
    runner.release(prepared)
    runner.release(prepared)
    assert runner.num_free_blocks == free - 2
    with pytest.raises(ValueError, match="released"):
        runner.open(prepared)
    stream.append(make_tokens(18))
    assert drain(runner, stream).isfinite().all()
    runner.close(stream)
    assert runner.num_free_blocks == free


def test_closing_in_a_batch_keeps_its_blocks_until_the_batch_is_done() -> None:
    runner = make_runner()
    free = runner.num_free_blocks
    gone, kept = begun(runner, 0, 60), begun(runner, 0, 60)
    render_ready(runner, [gone, kept])
    batch = runner.begin([gone, kept])
    batch.advance()
    runner.close(gone)
    assert batch.streams == [kept]
    assert runner.num_free_blocks == free - 4
    while not batch.advance():
        pass
    (mel,) = batch.result()
    assert mel.isfinite().all()
    assert runner.num_free_blocks == free - 2
    runner.close(kept)
    assert runner.num_free_blocks == free


def test_a_batch_without_streams_is_done_and_holds_nothing() -> None:
    runner = make_runner()
    free = runner.num_free_blocks
    stream = begun(runner, 0, 28)
    batch = runner.begin([stream])
    batch.advance()
    runner.close(stream)
    assert batch.advance()
    assert batch.result() == []
    assert runner.num_free_blocks == free


def test_dropping_leaves_the_stream_as_it_was() -> None:
    runner = make_runner()
    free = runner.num_free_blocks
    stream, other = begun(runner, 0, 28), begun(runner, 0, 28)
    batch = runner.begin([stream, other])
    batch.drop(stream)
    batch.drop(stream)
    assert stream.is_ready
    assert not stream.blocks
    while not batch.advance():
        pass
    assert len(batch.result()) == 1
    assert runner.num_free_blocks == free - 1
    assert batch.result() == []


def test_exhaustion_refuses_the_new_and_harms_none() -> None:
    runner = make_runner(num_blocks=3)
    reference = make_runner()
    old = begun(runner, 28, 60)
    same = begun(reference, 28, 60)
    first = drain(runner, old)  # the prompt's block and two of its own: the pool is full
    assert runner.num_free_blocks == 0
    new = begun(runner, 0, 28)
    with pytest.raises(BlocksExhausted, match="1 blocks wanted, 0 free"):
        runner.begin([new])
    with pytest.raises(BlocksExhausted):
        runner.prepare(make_prompt(30))
    assert new.is_ready
    runner.close(old)
    assert torch.equal(first, drain(reference, same))
    assert drain(runner, new).isfinite().all()


def test_mel_is_an_ordinary_contiguous_tensor() -> None:
    runner = make_runner()
    (mel,) = render_ready(runner, [begun(runner, 13, 15)])
    assert mel.is_contiguous()
    assert not mel.is_inference()
    mel.mul_(2)


def test_prompt_from_float16_files_is_accepted() -> None:
    prompt = make_prompt(30)
    half = FlowPrompt(prompt.speech_ids.to(torch.int32), prompt.mel.half(), prompt.embedding.half())
    assert len(make_runner().prepare(half).blocks) == 1
