"""The policy by tables, and a simulated engine: nobody starves, first audio comes first, leads are kept."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduler import AdvanceBatch, BeginBlocks, LlmStep, StreamView, decide

pytestmark = pytest.mark.unit

IDLE = StreamView(key=0, waiting_since_s=0.0, deadline_s=None, max_lead_s=5.0, wants_llm=False, has_block=False)


def test_nothing_to_do_waits_for_an_event() -> None:
    assert decide([], 0.0, max_flow_batch=4).work is None
    decision = decide([IDLE], 0.0, max_flow_batch=4)
    assert (decision.work, decision.wake_at_s) == (None, None)


def test_an_unheard_utterance_goes_before_one_about_to_run_dry() -> None:
    unheard = replace(IDLE, key=1, waiting_since_s=9.0, has_block=True)
    dry = replace(IDLE, key=2, deadline_s=10.0, has_block=True)
    assert decide([dry, unheard], 10.0, max_flow_batch=4).work == BeginBlocks((1,))


def test_the_oldest_unheard_utterance_goes_first() -> None:
    old, new = replace(IDLE, key=5, waiting_since_s=1.0, has_block=True), replace(IDLE, key=1, waiting_since_s=2.0)
    new = replace(new, has_block=True)
    assert decide([new, old], 3.0, max_flow_batch=1).work == BeginBlocks((5,))


def test_heard_utterances_go_by_deadline_and_share_a_batch() -> None:
    views = [
        replace(IDLE, key=key, deadline_s=deadline, has_block=True) for key, deadline in enumerate([3.0, 1.0, 2.0])
    ]
    assert decide(views, 0.0, max_flow_batch=2).work == BeginBlocks((1, 2))


def test_a_running_batch_is_finished_by_its_most_urgent_member() -> None:
    running = replace(IDLE, key=0, deadline_s=1.0, batch=7, wants_llm=True)
    later = replace(IDLE, key=1, deadline_s=2.0, has_block=True)
    assert decide([later, running], 0.0, max_flow_batch=4).work == AdvanceBatch(7)


def test_a_newcomer_interrupts_a_running_batch() -> None:
    running = replace(IDLE, key=0, deadline_s=1.0, batch=7)
    newcomer = replace(IDLE, key=1, wants_llm=True)
    assert decide([running, newcomer], 0.0, max_flow_batch=4).work == LlmStep((1,))


def test_llm_steps_take_along_everyone_who_is_due() -> None:
    newcomer = replace(IDLE, key=1, wants_llm=True)
    heard = replace(IDLE, key=2, deadline_s=2.0, wants_llm=True)
    far_ahead = replace(IDLE, key=3, deadline_s=50.0, wants_llm=True)
    assert decide([far_ahead, heard, newcomer], 0.0, max_flow_batch=4).work == LlmStep((1, 2))


def test_an_utterance_beyond_its_lead_waits_until_it_is_due() -> None:
    far_ahead = replace(IDLE, deadline_s=50.0, has_block=True)
    decision = decide([far_ahead], 0.0, max_flow_batch=4)
    assert (decision.work, decision.wake_at_s) == (None, 45.0)
    assert decide([far_ahead], 45.0, max_flow_batch=4).work == BeginBlocks((0,))


@given(
    views=st.lists(
        st.builds(
            StreamView,
            key=st.integers(0, 50),
            waiting_since_s=st.floats(0, 10),
            deadline_s=st.none() | st.floats(0, 30),
            max_lead_s=st.floats(0.2, 10),
            wants_llm=st.booleans(),
            has_block=st.booleans(),
        ),
        unique_by=lambda view: view.key,
    ),
    now_s=st.floats(0, 30),
)
def test_work_is_found_whenever_some_is_due_and_only_then(views: list[StreamView], now_s: float) -> None:
    decision = decide(views, now_s, max_flow_batch=4)
    due = [
        view
        for view in views
        if (view.wants_llm or view.has_block)
        and (view.deadline_s is None or view.deadline_s - view.max_lead_s <= now_s)
    ]
    assert (decision.work is not None) == bool(due)
    match decision.work:
        case LlmStep(keys):
            assert keys
            assert {view.key for view in due if view.wants_llm} == set(keys)
        case BeginBlocks(keys):
            assert 1 <= len(keys) <= 4
            assert set(keys) <= {view.key for view in due if view.has_block}
        case None:
            assert decision.wake_at_s is None or decision.wake_at_s > now_s


@pytest.mark.parametrize("num_streams", [1, 3, 40])
def test_simulated_load_starves_nobody(num_streams: int) -> None:
    """Virtual time; every LLM step and Euler step costs 1 ms whatever its batch; blocks are 25 tokens, 1 s."""
    tokens, blocks, deadlines = [0] * num_streams, [0] * num_streams, [math.nan] * num_streams
    running: dict[int, tuple[tuple[int, ...], int]] = {}
    now_s, goal_blocks = 0.0, 5
    while min(blocks) < goal_blocks:
        views = [
            StreamView(
                key=key,
                waiting_since_s=key / 100,
                deadline_s=None if math.isnan(deadlines[key]) else deadlines[key],
                max_lead_s=3.0,
                wants_llm=blocks[key] < goal_blocks and tokens[key] - 25 * blocks[key] < 60,
                has_block=tokens[key] >= 25 * (blocks[key] + 1) + 3 and not any(key in b for b, _ in running.values()),
                batch=next((number for number, (keys, _) in running.items() if key in keys), None),
            )
            for key in range(num_streams)
            if key / 100 <= now_s and blocks[key] < goal_blocks
        ]
        decision = decide(views, now_s, max_flow_batch=8)
        match decision.work:
            case LlmStep(keys):
                for key in keys:
                    tokens[key] += 1
            case BeginBlocks(keys):
                running[len(running) + int(now_s * 1e6)] = (keys, 1)
            case AdvanceBatch(number):
                keys, steps = running.pop(number)
                if steps + 1 < 10:
                    running[number] = (keys, steps + 1)
                for key in keys if steps + 1 == 10 else ():
                    blocks[key] += 1
                    deadlines[key] = now_s + 1.0 if math.isnan(deadlines[key]) else max(deadlines[key], now_s) + 1.0
        now_s += 0.001
        assert now_s < 60
        late = [now_s - deadline for deadline, done in zip(deadlines, blocks, strict=True) if 0 < done < goal_blocks]
        assert max(late, default=0.0) < 0.25
