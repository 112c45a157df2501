"""Upstream's chunk schedule by hand (FACTS of its tts: hops 25, 50, 100, the first padded to a block border)."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from voicegate.bench.plain.system import Chunk, chunks


def plan(num_tokens: int, num_prompt_tokens: int) -> list[Chunk]:
    return list(chunks(num_tokens, num_prompt_tokens, 3))


def test_hops_double_up_to_a_hundred_and_three_tokens_are_looked_ahead_at() -> None:
    assert plan(400, 125) == [
        Chunk(0, 28, is_final=False),
        Chunk(25, 78, is_final=False),
        Chunk(75, 178, is_final=False),
        Chunk(175, 278, is_final=False),
        Chunk(275, 378, is_final=False),
        Chunk(375, 400, is_final=True),
    ]


def test_the_first_hop_is_padded_to_a_border_counted_from_the_prompts_start() -> None:
    assert plan(90, 30) == [Chunk(0, 48, is_final=False), Chunk(45, 90, is_final=True)]
    assert plan(48, 30)[0] == Chunk(0, 48, is_final=False)
    assert plan(47, 30) == [Chunk(0, 47, is_final=True)]


@given(st.integers(0, 800), st.integers(0, 300))
def test_chunks_cover_everything_once_and_more_tokens_change_no_chunk_but_the_last(
    num_tokens: int, num_prompt_tokens: int
) -> None:
    planned = plan(num_tokens, num_prompt_tokens)
    assert [chunk.is_final for chunk in planned] == [False] * (len(planned) - 1) + [True]
    assert planned[-1].num_tokens == num_tokens
    for before, after in pairwise(planned):
        assert after.start == before.num_tokens - 3
        assert (num_prompt_tokens + after.start) % 25 == 0
    assert plan(num_tokens + 1, num_prompt_tokens)[: len(planned) - 1] == planned[:-1]
