"""A launch of many sequences is a few steps, and what they make is told together."""

from collections import defaultdict

import pytest

from tests.support.hollow_stages import hollow
from voicegate.engine.llm.backend import LlmBackend, LlmPrompt, SequenceRequest

pytestmark = pytest.mark.unit


def llm_with(lengths: list[int]) -> LlmBackend:
    """A sequence of each length, by number."""
    llm = hollow(num_slots=len(lengths)).stages.llm
    for number, length in enumerate(lengths):
        llm.add(SequenceRequest(number, LlmPrompt(), (1,) * 100, seed=number, max_tokens=length))
    return llm


@pytest.mark.parametrize(("num_sequences", "num_steps"), [(1, 1), (15, 1), (16, 2), (47, 3), (48, 4), (200, 4)])
def test_a_launch_of_more_sequences_is_more_steps(num_sequences: int, num_steps: int) -> None:
    llm = llm_with([9] * num_sequences)
    llm.launch(range(num_sequences))
    outputs = llm.poll()
    assert [output.sequence_id for output in outputs] == list(range(num_sequences)), "one of each"
    assert {len(output.tokens) for output in outputs} == {num_steps}
    assert (llm.counters["llm_steps"], llm.counters["llm_rows"]) == (num_steps, num_steps * num_sequences)


def test_in_the_steps_of_a_launch_sequences_end_as_they_would_one_by_one() -> None:
    lengths = [1 + number % 7 for number in range(40)]
    tokens: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    together, ended = llm_with(lengths), set[int]()
    while runnable := [number for number in range(40) if together.is_runnable(number)]:
        together.launch(runnable)
        for output in together.poll():
            assert output.sequence_id not in ended, "nothing follows the last output"
            tokens[output.sequence_id] += output.tokens
            if output.is_final:
                ended.add(output.sequence_id)
                assert output.is_truncated
    assert ended == set(range(40))
    alone = llm_with(lengths)
    for number, length in enumerate(lengths):
        one_by_one: tuple[int, ...] = ()
        while alone.is_runnable(number):
            alone.launch([number])
            one_by_one += alone.poll()[0].tokens
        assert tokens[number] == one_by_one
        assert len(one_by_one) == length
