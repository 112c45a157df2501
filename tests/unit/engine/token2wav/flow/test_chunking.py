"""Block arithmetic by tables: sound starts after 13 speech tokens only if the prompt ends at the right phase."""

import pytest

from voicegate.engine.token2wav.flow import chunking

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("prompt", "expected"), [(0, 25), (1, 24), (24, 1), (25, 25), (65, 10), (69, 6)])
def test_first_block_ends_at_a_block_border(prompt: int, expected: int) -> None:
    assert chunking.first_block_tokens(prompt) == expected
    assert (prompt + expected) % 25 == 0


@pytest.mark.parametrize(
    ("prompt", "trim"),
    [
        (65, 0),  # 10 tokens already
        (64, 0),  # 11: trimming can only make it longer
        (69, 4),  # 6 is too short, 65 gives 10
        (75, 10),  # 25 -> 10
        (80, 0),  # 20; the shortest within reach, at 70 prompt tokens, would be 5: too short to cover the next block
        (9, 0),
        (0, 0),
    ],
)
def test_prompts_are_trimmed_to_the_phase_of_a_short_first_block(prompt: int, trim: int) -> None:
    assert chunking.prompt_trim(prompt, wanted=10, max_trim=10) == trim


@pytest.mark.parametrize("prompt", range(1, 200))
def test_trimming_never_makes_the_first_block_worse(prompt: int) -> None:
    trim = chunking.prompt_trim(prompt, wanted=10, max_trim=10)
    before, after = chunking.first_block_tokens(prompt), chunking.first_block_tokens(prompt - trim)
    assert 0 <= trim <= min(10, prompt - 1)
    assert after == before or (10 <= after < before) or (before < 10 <= after)


def test_where_no_trim_reaches_the_wanted_size_the_largest_is_taken() -> None:
    assert chunking.first_block_tokens(49) == 1
    assert chunking.prompt_trim(49, wanted=12, max_trim=10) == 10
    assert chunking.first_block_tokens(39) == 11


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (25, 1), (26, 2), (69, 3)])
def test_a_prompts_ragged_block_counts(tokens: int, blocks: int) -> None:
    assert chunking.num_prompt_blocks(tokens) == blocks


@pytest.mark.parametrize("tokens", [1, 10, 25, 26, 100])
def test_speech_has_the_blocks_that_it_takes_behind_any_prompt(tokens: int) -> None:
    taken = {-(-(prompt + tokens) // 25) - prompt // 25 for prompt in range(50)}
    assert max(taken) <= chunking.num_speech_blocks(tokens)
