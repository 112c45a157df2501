"""Steps launched before the outputs of the last are known change no output; aborted ones come to nothing."""

import pytest

from tests.support.lanes import fetch_oldest
from tests.unit.engine.llm.cuda.support import drain_ahead, make_runner, reference, request
from tests.unit.engine.llm.support import drain, tokens
from voicegate.engine.llm.cuda import device_queue


def test_steps_launched_ahead_give_the_same_outputs() -> None:
    runner = make_runner(max_in_flight=3)
    ending = request(1, seed=47, max_tokens=20)
    assert len(reference(ending)) == 6  # ended by its own token, with two more steps in flight
    wanted = [
        request(0, seed=1),
        ending,
        request(2, seed=3, num_text=6, is_streaming=True, max_tokens=5),
    ]
    for each in wanted:
        runner.add(each)
    runner.end_text(2)
    outputs = drain_ahead(runner, depth=3)
    for each in wanted:
        assert outputs[each.sequence_id] == reference(each)
    assert runner.num_free_slots == 4


def test_how_far_ahead_a_sequence_may_run() -> None:
    runner = make_runner(max_in_flight=2)
    runner.add(request(0, max_tokens=3))
    runner.add(request(1, is_streaming=True))
    runner.end_text(1)
    assert runner.launch([0, 1]) == []
    assert runner.is_runnable(0)
    assert not runner.is_runnable(1)  # what it feeds next depends on its token
    assert runner.launch([0, 1]) == [1]
    assert not runner.is_runnable(0)
    assert runner.launch([0]) == [0]
    assert [output.sequence_id for output in fetch_oldest(runner)] == [0, 1]
    assert [output.sequence_id for output in fetch_oldest(runner)] == [0]
    assert not runner.is_busy
    runner.launch([0])
    assert not runner.is_runnable(0)  # the third token is the last that it may have


def test_an_aborted_sequences_steps_come_to_nothing() -> None:
    runner = make_runner(num_slots=2, max_in_flight=2)
    runner.add(request(0, seed=1))
    runner.add(request(1, seed=2))
    runner.launch([0, 1])
    runner.launch([0, 1])
    runner.abort(0)
    runner.abort(0)
    assert runner.num_free_slots == 1
    runner.add(request(0, seed=4))  # the same name and slot, another sequence
    runner.launch([0])
    made = [fetch_oldest(runner) for _ in range(3)]
    assert [[output.sequence_id for output in outputs] for outputs in made] == [[1], [1], [0]]
    rest = drain(runner)
    assert tokens(made[2] + rest[0]) == tokens(reference(request(0, seed=4)))
    assert tokens(made[0] + made[1] + rest[1]) == tokens(reference(request(1, seed=2)))


def test_more_prompts_than_there_are_buffers_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_queue, "_NUM_BUFFERS", 2)
    runner = make_runner(max_in_flight=2)
    wanted = [request(index, seed=index, max_tokens=2) for index in range(4)]  # 56 lines in passes of 16
    for each in wanted:
        runner.add(each)
    outputs = drain_ahead(runner, depth=3)
    for each in wanted:
        assert outputs[each.sequence_id] == reference(each)


def test_a_launch_that_fails_leaves_the_steps_before_and_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(max_in_flight=3, num_slots=2)
    runner.add(request(0, seed=1))
    runner.add(request(1, seed=3))
    runner.launch([0, 1])
    runner.launch([1])
    num_idle = len(runner._queue._idle)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("made to fail")

    with monkeypatch.context() as patched:
        patched.setattr(runner.buckets, "run", fail)
        with pytest.raises(RuntimeError, match="made to fail"):
            runner.launch([1])
    assert len(runner._queue._idle) == num_idle
    runner.abort(1)  # as its utterance, which has failed by that
    runner.launch([0])
    assert len(runner._in_flight) == 3
    runner.wait()
    spoken = tokens(runner.poll())
    assert spoken == [token for output in reference(request(0, seed=1)) for token in output.tokens][:2]
    assert not runner._pending
