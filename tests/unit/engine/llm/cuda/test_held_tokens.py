"""Tokens that nobody needs yet stay with the runner; what comes of a sequence is the same."""

from collections import defaultdict

import pytest

from tests.support.lanes import fetch_oldest
from tests.unit.engine.llm.cuda.support import PROMPT, drain_ahead, make_runner, reference, request
from tests.unit.engine.llm.support import tokens
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.cuda.runner import CudaLlmRunner


def drain_holding(runner: CudaLlmRunner, wanted: int) -> dict[int, list[SequenceOutput]]:
    """Two steps in flight; who has been told of is asked for so many tokens."""
    outputs: dict[int, list[SequenceOutput]] = defaultdict(list)
    while True:
        runnable = [sequence_id for sequence_id in range(4) if runner.is_runnable(sequence_id)]
        if runnable:
            runner.launch(runnable)
        if not runner.is_busy:
            return outputs
        if len(runner._in_flight) == 2 or not runnable:
            for output in fetch_oldest(runner):
                outputs[output.sequence_id].append(output)
                runner.tell_after(output.sequence_id, wanted)


@pytest.mark.parametrize(
    "wanted", [pytest.param(2, marks=pytest.mark.soak), 3, pytest.param(64, marks=pytest.mark.soak)]
)
def test_the_same_comes_of_a_sequence_however_much_is_held_back(wanted: int) -> None:
    runner = make_runner(max_in_flight=2)
    requests = [request(0, seed=1, max_tokens=7), request(1, seed=47, max_tokens=20), request(2, seed=3)]
    for each in requests:
        runner.add(each)
    found = drain_holding(runner, wanted)
    for each in requests:
        outputs, alone = found[each.sequence_id], reference(each)
        assert tokens(outputs) == tokens(alone)
        assert outputs[-1].is_truncated == alone[-1].is_truncated
        assert [output.is_final for output in outputs] == [False] * (len(outputs) - 1) + [True]
        assert len(outputs) < len(alone)
    assert runner.num_free_slots == 4


def test_what_is_held_back_can_be_taken_and_is_not_told_again() -> None:
    runner = make_runner(max_in_flight=1)
    wanted = request(0, seed=1, max_tokens=7)
    runner.add(wanted)
    found = tokens(runner.step([0]))
    runner.tell_after(0, 40)
    assert [runner.step([0]), runner.step([0])] == [[], []]
    found += runner.take_held(0)
    assert len(found) == 3
    assert runner.take_held(0) == ()
    while runner.is_runnable(0):
        found += tokens(runner.step([0]))
    assert found == tokens(reference(wanted))
    assert runner.take_held(0) == ()


def test_a_pause_is_told_at_once_and_readings_go_on_behind_what_was_held_back() -> None:
    texts: list[tuple[tuple[int, ...], int | None]] = [((10, 11), 4), ((10, 11, 12), 7), ((10, 11, 12, 13), None)]
    found = []
    for wanted in (1, 40):
        runner = make_runner(max_in_flight=2)
        runner.add(SequenceRequest(0, PROMPT, (), is_growing=True, seed=3, max_tokens=20))
        said: list[SequenceOutput] = []
        for text, until in texts:
            runner.read(0, text, until=until)
            said += drain_holding(runner, wanted)[0]
            assert said[-1].is_paused == (until is not None)
            assert said[-1].is_final == (until is None)
        assert [len(output.tokens) for output in said if output.is_paused] == ([1, 1] if wanted == 1 else [3, 2])
        found.append(tokens(said))
    assert found[0] == found[1]


def test_an_aborted_sequences_tokens_are_nobodys() -> None:
    runner = make_runner(num_slots=1, max_in_flight=2)
    runner.add(request(0, seed=1, max_tokens=9))
    runner.tell_after(0, 9)
    runner.launch([0])
    runner.launch([0])
    runner.abort(0)
    wanted = request(1, seed=4)
    runner.add(wanted)
    found = runner.step([1]) + drain_ahead(runner, depth=2).get(1, [])
    assert {output.sequence_id for output in found} == {1}
    assert tokens(found) == tokens(reference(wanted))
