"""Tokens that nobody needs yet stay with the runner; what comes of a sequence is the same."""

from collections import defaultdict, deque

import numpy as np
import pytest

from tests.unit.engine.llm.cuda.support import PROMPT, drain_ahead, make_runner, reference, request, tokens
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.cuda.held_tokens import HeldTokens
from voicegate.engine.llm.cuda.runner import CudaLlmRunner
from voicegate.engine.llm.runner import LaunchedStep

pytestmark = pytest.mark.unit

SPEECH_IDS = 100


def held(*, max_tokens: int = 50) -> HeldTokens:
    subject = HeldTokens(4)
    subject.max_tokens[:] = max_tokens
    return subject


def take(subject: HeldTokens, **token_by_slot: int) -> list[int]:
    """The slots that are to be told of."""
    slots = np.array([int(name[1:]) for name in token_by_slot])
    is_told = subject.take(slots, np.array(list(token_by_slot.values()), np.int32), speech_ids=SPEECH_IDS)
    return [int(slot) for slot in slots[is_told]]


def test_every_token_is_told_until_fewer_are_wanted() -> None:
    subject = held()
    assert take(subject, s0=5, s2=6) == [0, 2]
    assert (subject.give(0), subject.give(2), subject.give(1)) == ([5], [6], [])
    subject.tell_after(0, 3)
    assert [take(subject, s0=token, s2=9) for token in (1, 2, 3)] == [[2], [2], [0, 2]]
    assert subject.give(0) == [1, 2, 3]
    assert take(subject, s0=4) == [0], "and of each again"


def test_an_end_a_special_token_and_the_limit_are_told_at_once() -> None:
    subject = held(max_tokens=3)
    for slot in range(3):
        subject.tell_after(slot, 40)
    assert take(subject, s0=1, s1=1, s2=1) == []
    assert take(subject, s0=SPEECH_IDS, s1=2, s2=2) == [0]
    assert take(subject, s1=3) == [1]
    assert (subject.give(0), subject.give(1)) == ([1, SPEECH_IDS], [1, 2, 3])


def test_nobody_holds_more_than_there_is_room_for() -> None:
    subject = held(max_tokens=1000)
    subject.tell_after(0, 900)
    told = [take(subject, s0=token % SPEECH_IDS) for token in range(64)]
    assert told == [[]] * 63 + [[0]]
    assert len(subject.give(0)) == 64


def test_another_sequence_has_nothing_of_the_slots_last_one() -> None:
    subject = held()
    subject.tell_after(1, 9)
    take(subject, s1=1)
    subject.begin(1)
    assert take(subject, s1=2) == [1]
    assert subject.give(1) == [2]


def drain_holding(runner: CudaLlmRunner, wanted: int) -> dict[int, list[SequenceOutput]]:
    """Two steps in flight; who has been told of is asked for so many tokens."""
    outputs: dict[int, list[SequenceOutput]] = defaultdict(list)
    launched: deque[LaunchedStep] = deque()
    while True:
        runnable = [sequence_id for sequence_id in range(4) if runner.is_runnable(sequence_id)]
        if runnable:
            launched.append(runner.launch(runnable))
        if not launched:
            return outputs
        if len(launched) == 2 or not runnable:
            for output in launched.popleft().outputs():
                outputs[output.sequence_id].append(output)
                runner.tell_after(output.sequence_id, wanted)


@pytest.mark.parametrize("wanted", [2, 3, 64])
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
    steps = [runner.launch([0]), runner.launch([0])]
    runner.abort(0)
    wanted = request(1, seed=4)
    runner.add(wanted)
    steps.append(runner.launch([1]))
    found = [output for step in steps for output in step.outputs()] + drain_ahead(runner, depth=2).get(1, [])
    assert {output.sequence_id for output in found} == {1}
    assert tokens(found) == tokens(reference(wanted))
