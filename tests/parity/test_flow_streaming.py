"""Whatever the arrival of tokens and the others in a batch, a stream's frames are those of the whole at once."""

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
    open_stream,
    render_alone,
    render_ready,
)
from voicegate.engine.flow.chunking import FirstBlocks
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


def test_dropped_stream_can_begin_again() -> None:
    runner = make_runner()
    prompt, tokens = make_prompt(13), make_tokens(60)
    stream = open_stream(runner, 60, prompt_size=13)
    first = render_ready(runner, [stream])
    batch = runner.begin([stream])
    for _ in range(6):
        batch.advance()
    batch.drop(stream)
    assert batch.is_done
    mel = torch.cat((*first, drain(runner, stream)), dim=1)
    assert_near(mel, render_alone(prompt, tokens))
