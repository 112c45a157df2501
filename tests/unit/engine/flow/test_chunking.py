"""Block arithmetic by tables: sound starts after so many speech tokens as the prompt leaves of its last block."""

import pytest

from voicegate.engine.flow import chunking


@pytest.mark.parametrize(("prompt", "expected"), [(0, 25), (1, 24), (24, 1), (25, 25), (65, 10), (69, 6)])
def test_first_block_ends_at_a_block_border(prompt: int, expected: int) -> None:
    assert chunking.first_block_tokens(prompt) == expected
    assert (prompt + expected) % 25 == 0


@pytest.mark.parametrize("first_block", [6, 10, 12, 22])
@pytest.mark.parametrize("prompt", [1, 2, 5, *range(65, 90)])
def test_the_first_block_is_the_same_behind_prompts_of_every_length(prompt: int, first_block: int) -> None:
    lead_in = chunking.prompt_lead_in(prompt, first_block=first_block)
    assert 0 <= lead_in < 25
    assert chunking.first_block_tokens(prompt + lead_in) == first_block
    assert (prompt + lead_in) // 25 <= chunking.num_prompt_blocks(prompt, num_layouts=1), "and takes no more memory"


def test_without_a_prompt_there_is_nothing_to_lead_in() -> None:
    assert chunking.prompt_lead_in(0, first_block=10) == 0


def test_where_no_first_block_is_asked_for_a_prompt_is_as_it_is() -> None:
    assert chunking.prompt_lead_in(7, first_block=None) == 0


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (25, 1), (26, 2), (69, 3)])
def test_a_prompts_ragged_block_counts(tokens: int, blocks: int) -> None:
    assert chunking.num_prompt_blocks(tokens, num_layouts=1) == blocks
    assert chunking.num_prompt_blocks(tokens, num_layouts=2) == 2 * blocks


@pytest.mark.parametrize(("short", "num_layouts"), [(10, 1), (6, 2)])
def test_numbers_that_are_the_same_are_one_layout(short: int, num_layouts: int) -> None:
    assert chunking.FirstBlocks(usual=10, short=short).num_layouts == num_layouts


@pytest.mark.parametrize("tokens", [1, 10, 25, 26, 100])
def test_speech_has_the_blocks_that_it_takes_behind_any_prompt(tokens: int) -> None:
    taken = {-(-(prompt + tokens) // 25) - prompt // 25 for prompt in range(50)}
    assert max(taken) <= chunking.num_speech_blocks(tokens)
