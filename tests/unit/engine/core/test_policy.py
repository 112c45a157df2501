"""The policy by tables: first audio comes first, leads are kept, what has no room waits."""

import math
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.core import constants, policy
from voicegate.engine.core.policy import (
    Decision,
    Intake,
    Limits,
    Ranked,
    StreamView,
    due_at_s,
    euler_steps_at_once,
    pressing_at_s,
    urgency,
)
from voicegate.engine.flow.chunking import BatchSize


def whole(num_blocks: int) -> BatchSize:
    return BatchSize(num_rows=num_blocks, num_frames=50 * num_blocks)


LIMITS = Limits(flow_batch=whole(4))
IDLE = StreamView(key=0, waiting_since_s=0.0, deadline_s=None, max_lead_s=5.0, wants_llm=False)


def decide(views: Iterable[StreamView], now_s: float, limits: Limits, intake: Intake | None = None) -> Decision:
    """`wake_at_s`: when more is due, where nothing is."""
    due, later_s = dict[int, Ranked](), list[float]()
    for view in views:
        if not (view.wants_llm or view.block_frames or view.batch is not None):
            continue
        if due_at_s(view) <= now_s:
            due[view.key] = urgency(view, now_s, limits)[0], view
        else:
            later_s.append(due_at_s(view))
    decision = policy.decide(due, limits, intake or Intake())
    return decision if due else replace(decision, wake_at_s=min(later_s, default=None))


def test_nothing_to_do_waits_for_an_event() -> None:
    assert decide([], 0.0, LIMITS).is_idle
    decision = decide([IDLE], 0.0, LIMITS)
    assert (decision.is_idle, decision.wake_at_s) == (True, None)


def test_an_unheard_utterance_goes_before_listeners_with_audio_left() -> None:
    unheard = IDLE._replace(key=1, waiting_since_s=9.0, block_frames=50)
    heard = IDLE._replace(key=2, deadline_s=10.5, block_frames=50)
    assert decide([heard, unheard], 10.0, LIMITS).begins == (1,)


def test_the_oldest_unheard_utterance_goes_first() -> None:
    old, new = IDLE._replace(key=5, waiting_since_s=1.0, block_frames=50), IDLE._replace(key=1, waiting_since_s=2.0)
    new = new._replace(block_frames=50)
    assert decide([new, old], 3.0, Limits(flow_batch=whole(1))).begins == (5,)


def test_heard_utterances_go_by_deadline_and_share_a_batch() -> None:
    views = [
        IDLE._replace(key=key, deadline_s=deadline, block_frames=50) for key, deadline in enumerate([0.9, 0.3, 0.6])
    ]
    assert decide(views, 0.0, Limits(flow_batch=whole(2))).begins == (1, 2)


def test_a_running_batch_is_finished_by_its_most_urgent_member() -> None:
    running = IDLE._replace(key=0, deadline_s=1.0, batch=7, wants_llm=True)
    later = IDLE._replace(key=1, deadline_s=2.0, block_frames=50)
    assert decide([later, running], 0.0, LIMITS).advances == 7


def test_a_new_request_interrupts_a_running_batch() -> None:
    running = IDLE._replace(key=0, deadline_s=1.0, batch=7)
    new_request = IDLE._replace(key=1, wants_llm=True)
    assert decide([running, new_request], 0.0, LIMITS).llm == (1,)


def test_llm_steps_take_along_everyone_who_is_due() -> None:
    new_request = IDLE._replace(key=1, wants_llm=True)
    heard = IDLE._replace(key=2, deadline_s=2.0, wants_llm=True)
    far_ahead = IDLE._replace(key=3, deadline_s=50.0, wants_llm=True)
    step = decide([far_ahead, heard, new_request], 0.0, LIMITS).llm
    assert set(step) == {1, 2}


def test_a_burst_of_prompts_is_read_in_parts_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "MAX_PREFILLS", 3)
    new_requests = [
        IDLE._replace(key=9 - key, waiting_since_s=key, wants_llm=True, needs_prefill=True) for key in range(9)
    ]
    heard = IDLE._replace(key=20, deadline_s=12.0, wants_llm=True)
    step = decide([heard, *new_requests], 10.0, LIMITS).llm
    assert set(step) == {20, 9, 8, 7}


def test_an_utterance_beyond_its_lead_waits_until_it_is_due() -> None:
    far_ahead = IDLE._replace(deadline_s=50.0, block_frames=50)
    decision = decide([far_ahead], 0.0, LIMITS)
    assert (decision.is_idle, decision.wake_at_s) == (True, 45.0)
    assert decide([far_ahead], 45.0, LIMITS).begins == (0,)


@given(
    views=st.lists(
        st.builds(
            StreamView,
            key=st.integers(0, 50),
            waiting_since_s=st.floats(0, 10),
            deadline_s=st.none() | st.floats(0, 30),
            max_lead_s=st.floats(0.2, 10),
            wants_llm=st.booleans(),
            block_frames=st.sampled_from([0, 2, 30, 50]),
            num_blocks=st.just(1),
            batch=st.none(),
            begun_s=st.none() | st.floats(0, 10),
            needs_prefill=st.just(False),
        ),
        unique_by=lambda view: view.key,
    ),
    now_s=st.floats(0, 30),
)
def test_work_is_found_whenever_some_is_due_and_only_then(views: list[StreamView], now_s: float) -> None:
    decision = decide(views, now_s, LIMITS)
    due = [
        view
        for view in views
        if (view.wants_llm or view.block_frames)
        and (view.deadline_s is None or view.deadline_s - view.max_lead_s <= now_s)
    ]
    assert decision.is_idle == (not due)
    assert not (decision.llm and decision.has_flow_step), "one processor"
    if decision.llm:
        assert {view.key for view in due if view.wants_llm} == set(decision.llm)
    assert set(decision.begins) <= {view.key for view in due if view.block_frames}
    assert len(decision.begins) <= 4
    if decision.is_idle:
        assert decision.wake_at_s is None or decision.wake_at_s > now_s


def test_lanes_side_by_side_are_given_work_each() -> None:
    views = [IDLE._replace(key=1, block_frames=50), IDLE._replace(key=2, wants_llm=True)]
    decision = decide(views, 0.0, Limits(flow_batch=whole(4), is_concurrent=True))
    assert (decision.llm, decision.begins) == ((2,), (1,))


def test_a_lane_that_is_full_gets_nothing_and_the_other_goes_on() -> None:
    views = [IDLE._replace(key=1, block_frames=50), IDLE._replace(key=2, wants_llm=True)]
    assert decide(views, 0.0, LIMITS, Intake(takes_flow_step=False)).llm == (2,)
    assert decide(views, 0.0, LIMITS, Intake(takes_llm_step=False)).begins == (1,)


def test_heard_utterances_wait_for_the_batch_of_their_equals_but_new_requests_do_not() -> None:
    running = IDLE._replace(key=0, deadline_s=9.0, batch=7)
    ready = IDLE._replace(key=1, deadline_s=8.0, block_frames=50)
    assert decide([running, ready], 5.0, LIMITS).advances == 7
    new_request = IDLE._replace(key=2, waiting_since_s=4.0, block_frames=50)
    assert decide([running, ready, new_request], 5.0, LIMITS).begins == (2,)
    assert decide([running, ready, new_request], 5.0, LIMITS, Intake(num_new_batches=0)).advances == 7


GPU = Limits(flow_batch=whole(34), is_concurrent=True)


def ready(key: int, *, deadline_s: float | None = None, **fields: Any) -> StreamView:
    return IDLE._replace(key=key, deadline_s=deadline_s, block_frames=50, max_lead_s=99.0)._replace(**fields)


def test_on_a_gpu_a_small_batch_takes_ready_blocks_of_the_other_side_along() -> None:
    heard, new_request = ready(1, deadline_s=6.0), ready(2, waiting_since_s=4.5)
    assert decide([heard, new_request], 5.0, GPU).begins == (2, 1)
    pressing = ready(3, deadline_s=5.1)
    assert decide([pressing, new_request], 5.0, GPU).begins == (3, 2)
    assert decide([heard, new_request], 5.0, replace(GPU, is_concurrent=False)).begins == (2,)


def test_where_few_have_work_blocks_that_nobody_needs_for_a_second_stay_behind_a_new_requests() -> None:
    new_request, soon = ready(100, waiting_since_s=4.5), ready(50, deadline_s=5.9)
    buffered = [ready(key, deadline_s=60.0) for key in range(16)]
    assert decide([*buffered[:9], new_request], 5.0, GPU).begins == (100,)
    assert decide([*buffered[:9], soon, new_request], 5.0, GPU).begins == (100, 50)
    assert decide([*buffered, new_request], 5.0, GPU).begins == (100, *range(16)), "half as many as a batch has rows"
    new_requests = [ready(key, waiting_since_s=4.5) for key in (100, 101)]
    pressing = ready(51, deadline_s=5.1)
    assert decide([pressing, *new_requests], 5.0, GPU).begins == (51, 100, 101), "new requests are never buffered"


def test_where_few_have_work_nothing_of_listeners_is_launched_behind_what_is_under_way() -> None:
    under_way = Intake(is_flow_busy=True)
    new_request, pressing = ready(100, waiting_since_s=4.5), ready(50, deadline_s=5.1)
    heard = [ready(key, deadline_s=60.0) for key in range(17)]
    running = [each._replace(batch=7, block_frames=0) for each in heard]
    for few in (heard[:16], running[:16], [pressing]):
        assert not decide(few, 5.0, GPU, under_way).has_flow_step
        assert decide(few, 5.0, GPU).has_flow_step, "nothing is under way"
    assert decide([*running[:15], new_request], 5.0, GPU, under_way).begins == (100,), "new requests go on"
    assert decide([pressing, new_request], 5.0, GPU, under_way).begins == (100, 50), "and take along"
    assert decide(running, 5.0, GPU, under_way).advances == 7, "half as many as a batch has rows"
    lacking = IDLE._replace(key=200, deadline_s=60.0, wants_llm=True, max_lead_s=99.0)
    assert decide([*running[:15], lacking], 5.0, GPU, under_way).llm == (200,), "the LLM goes on beside it"


def test_no_more_go_along_than_there_is_room_for() -> None:
    heard = [ready(key, deadline_s=6.0 + key) for key in range(40)]
    new_requests = [ready(100 + key, waiting_since_s=4.5, block_frames=30) for key in range(10)]
    begun = decide([*heard, *new_requests], 5.0, GPU).begins
    assert begun == (*range(100, 110), *range(24)), "34 rows"
    begun = decide([*heard, *new_requests], 5.0, GPU, Intake(num_blocks=12)).begins
    assert begun == (*range(100, 110), 0, 1)
    few_frames = replace(GPU, flow_batch=BatchSize(num_rows=40, num_frames=450))
    assert decide([*heard, *new_requests], 5.0, few_frames).begins == (*range(100, 110), 0, 1, 2)
    buffered = [ready(key, deadline_s=60.0) for key in range(40)]
    larger = replace(GPU, buffered_flow_batch=whole(40))
    assert decide(buffered, 5.0, larger).begins == tuple(range(40))
    assert decide([*buffered, *new_requests[:2]], 5.0, larger).begins == (100, 101, *range(32))


def test_nobody_goes_along_whose_equals_are_solved_already() -> None:
    running, heard = IDLE._replace(key=0, deadline_s=9.0, batch=7), ready(1, deadline_s=6.0)
    new_request = ready(2, waiting_since_s=4.5)
    assert decide([running, heard, new_request], 5.0, GPU).begins == (2,)


def test_beside_the_flow_no_llm_step_of_many_rows_is_launched_ahead() -> None:
    running = IDLE._replace(key=0, deadline_s=5.1, batch=7, max_lead_s=99.0)
    new_requests = [IDLE._replace(key=key, waiting_since_s=4.5, wants_llm=True) for key in range(1, 17)]
    under_way = Intake(is_llm_busy=True)
    assert decide([running, *new_requests], 5.0, GPU, under_way).llm == ()
    assert decide([running, *new_requests], 5.0, GPU).llm != ()
    assert decide([running, *new_requests[:15]], 5.0, GPU, under_way).llm != (), "few: they would wait for the host"
    assert decide(new_requests, 5.0, GPU, under_way).llm != (), "the device would"
    assert decide([running, *new_requests], 5.0, replace(GPU, shares_device=False), under_way).llm != ()


def test_of_four_steps_that_a_new_request_waits_for_one_takes_along_who_has_plenty_left() -> None:
    new_request = IDLE._replace(key=0, waiting_since_s=4.5, wants_llm=True)
    soon = IDLE._replace(key=1, deadline_s=5.5, wants_llm=True)
    buffered = [IDLE._replace(key=key, deadline_s=9.0, wants_llm=True) for key in range(2, 17)]

    def rows(views: list[StreamView], num_llm_steps: int, limits: Limits = GPU) -> int:
        step = decide(views, 5.0, limits, Intake(num_llm_steps=num_llm_steps)).llm
        return len(step)

    many = [new_request, soon, *buffered]
    assert [rows(many, number) for number in range(8)] == [17, 2, 2, 2, 17, 2, 2, 2]
    assert rows([soon, *buffered, IDLE._replace(key=17, deadline_s=9.0, wants_llm=True)], 1) == 17, "nobody waits"
    assert rows(many[:-1], 1) == 16, "no step of many rows"
    prompt = IDLE._replace(key=18, waiting_since_s=4.9, wants_llm=True, needs_prefill=True)
    assert rows([*many, prompt], 1) == 18, "a prompt makes it one in any case"
    assert rows(many, 1, LIMITS) == 17, "on a processor a row costs what it costs"
    under_way = IDLE._replace(key=0, waiting_since_s=4.5)
    assert rows([under_way, *buffered, *(each._replace(key=each.key + 20) for each in buffered)], 1) == 30, (
        "none else would step"
    )


def test_the_llm_makes_way_for_first_blocks_to_their_end() -> None:
    """Also behind the launch of their last step, when nothing of them is to be decided any more."""
    heard = IDLE._replace(key=1, deadline_s=9.0, wants_llm=True)
    assert decide([heard], 5.0, GPU).llm == (1,)
    under_way = Intake(has_first_blocks_under_way=True)
    assert decide([heard], 5.0, GPU, under_way).llm == ()
    about_to_be_heard = IDLE._replace(key=2, wants_llm=True, awaits_samples=True)
    assert decide([heard, about_to_be_heard], 5.0, GPU, under_way).llm == (), "who has a block coming lacks nothing"
    new_request = IDLE._replace(key=3, wants_llm=True)
    step = decide([heard, about_to_be_heard, new_request], 5.0, GPU, under_way).llm
    assert set(step) == {1, 2, 3}, "but for who has none all step"
    assert decide([heard._replace(deadline_s=5.5)], 5.0, GPU, under_way).llm == (), "first blocks take milliseconds"
    short = heard._replace(deadline_s=5.1, awaits_samples=True)
    assert decide([short], 5.0, GPU, under_way).llm == (1,), "and for a listener about to have an underrun"
    assert decide([heard], 5.0, replace(GPU, shares_device=False), under_way).llm == (1,)


def test_the_flow_holds_what_nobody_is_about_to_need_while_a_new_request_lacks_tokens() -> None:
    new_request = IDLE._replace(key=1, wants_llm=True)
    ready = IDLE._replace(key=2, deadline_s=5.5, block_frames=50)
    running = IDLE._replace(key=3, deadline_s=9.0, batch=7, max_lead_s=99.0)
    for heard in ([ready], [running], [ready, running]):
        decision = decide([new_request, *heard], 5.0, GPU)
        assert (decision.llm, decision.has_flow_step, decision.holds_flow) == ((1,), False, True)
        assert not decide(heard, 5.0, GPU).holds_flow, "nobody lacks any"
        assert decide(heard, 5.0, GPU).has_flow_step
    in_flight = decide([new_request, ready], 5.0, GPU, Intake(takes_llm_step=False))
    assert (in_flight.is_idle, in_flight.holds_flow) == (True, True)
    short = ready._replace(deadline_s=5.1)
    assert decide([new_request, short], 5.0, GPU).begins == (2,), "who would have an underrun waits for nobody"
    unheard = IDLE._replace(key=4, block_frames=50)
    assert decide([new_request, unheard, ready], 5.0, GPU).begins == (4, 2), "nor does a first block"
    assert decide([new_request, ready], 5.0, replace(GPU, shares_device=False)).begins == (2,), "nobody is slowed"
    assert not decide([new_request, ready], 5.0, LIMITS).has_flow_step, "one processor takes one of the two"
    assert decide([new_request, ready], 5.0, LIMITS).holds_flow is False


def test_a_listener_at_the_edge_overtakes_new_requests_and_new_requests_age() -> None:
    edge = IDLE._replace(key=0, deadline_s=10.05, block_frames=50)
    new_request = IDLE._replace(key=1, waiting_since_s=9.99, block_frames=50)
    assert decide([edge, new_request], 10.0, LIMITS).begins == (0,)
    assert decide([edge, new_request._replace(waiting_since_s=8.9)], 10.0, LIMITS).begins == (1,)


def test_who_waits_for_room_is_ranked_as_who_has_it_but_for_those_about_to_have_an_underrun() -> None:
    limits = replace(LIMITS, room_guard_s=1.0)
    new_request = IDLE._replace(key=0, waiting_since_s=9.5, begun_s=None)
    old = new_request._replace(key=1, waiting_since_s=1.0)
    buffered, short, dry = (
        new_request._replace(key=key, deadline_s=deadline_s) for key, deadline_s in ((2, 12.0), (3, 10.9), (4, 9.0))
    )
    ranked = sorted([buffered, new_request, short, old, dry], key=lambda view: urgency(view, 10.0, limits)[0])
    assert ranked == [dry, short, old, new_request, buffered]
    assert [pressing_at_s(view, limits) for view in (short, new_request)] == [9.9, math.inf]


def test_listeners_with_plenty_left_are_served_by_the_age_of_their_clauses() -> None:
    views = [
        IDLE._replace(key=0, deadline_s=3.0, begun_s=2.0, block_frames=50),
        IDLE._replace(key=1, deadline_s=4.0, begun_s=1.0, block_frames=50),
        IDLE._replace(key=2, deadline_s=0.9, begun_s=3.0, block_frames=50),
    ]
    assert decide(views, 0.0, LIMITS).begins == (2, 1, 0)


def test_a_batch_takes_as_many_rows_as_there_are_blocks() -> None:
    views = [IDLE._replace(key=key, waiting_since_s=key, block_frames=50) for key in range(4)]
    assert decide(views, 9.0, LIMITS, Intake(num_blocks=2)).begins == (0, 1)
    assert decide(views, 9.0, LIMITS, Intake(num_blocks=0)).is_idle


def test_rows_that_take_several_blocks_of_memory_are_added_up() -> None:
    views = [
        IDLE._replace(key=key, waiting_since_s=key, block_frames=50, num_blocks=num_blocks)
        for key, num_blocks in enumerate([3, 4, 1, 1])
    ]
    assert decide(views, 9.0, LIMITS, Intake(num_blocks=9)).begins == (0, 1, 2, 3)
    assert decide(views, 9.0, LIMITS, Intake(num_blocks=5)).begins == (0, 2, 3)
    assert decide(views[:2], 9.0, LIMITS, Intake(num_blocks=2)).is_idle, "nothing fits: nothing is begun"


def test_where_nothing_of_the_more_urgent_kind_fits_the_others_may_go_on() -> None:
    unheard = IDLE._replace(key=0, waiting_since_s=0.0, block_frames=50, num_blocks=4)
    heard = IDLE._replace(key=1, deadline_s=9.5, block_frames=50)
    assert decide([unheard, heard], 9.0, LIMITS, Intake(num_blocks=2)).begins == (1,)


def test_short_blocks_leave_room_for_others() -> None:
    size = BatchSize(num_rows=4, num_frames=100)
    views = [
        IDLE._replace(key=key, deadline_s=0.5 + key / 10, block_frames=frames)
        for key, frames in enumerate([40, 50, 30, 10, 4])
    ]
    assert decide(views, 0.0, Limits(size)).begins == (0, 1, 3), "10 fill up what 30 do not fit in"
    assert decide(views, 0.0, Limits(replace(size, num_frames=140))).begins == (0, 1, 2, 3), "four rows"
    assert decide(views, 0.0, Limits(size), Intake(num_blocks=2)).begins == (0, 1)
    first = views[4]._replace(deadline_s=0.1)
    assert decide([first, *views[:4]], 0.0, Limits(size)).begins == (4, 0, 1), "6 frames stay empty"


@given(
    frames=st.lists(st.integers(1, 25).map(lambda n: 2 * n), min_size=1, max_size=60),
    size=st.builds(BatchSize, num_rows=st.integers(1, 40), num_frames=st.integers(25, 300).map(lambda n: 2 * n)),
    deadlines=st.randoms(use_true_random=False),
)
def test_whoever_is_left_out_does_not_fit_beside_those_before_him(
    frames: list[int], size: BatchSize, deadlines: Random
) -> None:
    views = [
        IDLE._replace(key=key, deadline_s=deadlines.uniform(0.2, 0.9), block_frames=each)
        for key, each in enumerate(frames)
    ]
    taken = [views[key] for key in decide(views, 0.0, Limits(size)).begins]
    assert taken
    assert len(taken) <= size.num_rows
    assert sum(view.block_frames for view in taken) <= size.num_frames

    def turn(view: StreamView) -> tuple[float, int]:
        return (view.deadline_s or 0.0, view.key)

    assert taken == sorted(taken, key=turn)
    for view in views:
        if view not in taken:
            before = [other for other in taken if turn(other) < turn(view)]
            num_left = size.num_frames - sum(other.block_frames for other in before)
            assert len(before) == size.num_rows or view.block_frames > num_left


LANES = Limits(flow_batch=whole(2), is_concurrent=True)


def buffered(key: int, *, block_frames: int = 0) -> StreamView:
    return IDLE._replace(key=key, deadline_s=3.0, wants_llm=True, block_frames=block_frames)


def test_tokens_that_nobody_waits_for_make_way_for_a_first_block() -> None:
    starting = IDLE._replace(key=1, block_frames=50, wants_llm=True)
    decision = decide([starting, buffered(2)], 0.0, LANES)
    assert (decision.begins, decision.llm) == ((1,), ())
    running = starting._replace(block_frames=0, batch=7)
    decision = decide([running, buffered(2)], 0.0, LANES, Intake(takes_flow_step=False, is_flow_busy=True))
    assert decision.llm == (), "its Euler steps are on their way"
    new_request = IDLE._replace(key=3, wants_llm=True)
    at_edge = IDLE._replace(key=4, wants_llm=True, deadline_s=0.1)
    step = decide([running, buffered(2), new_request, at_edge], 0.0, LANES).llm
    assert set(step) == {1, 2, 3, 4}, "a step that is taken takes all along"


def test_tokens_that_nobody_waits_for_wait_while_two_batches_of_blocks_do() -> None:
    backlog = [buffered(key, block_frames=50) for key in range(4)]
    assert decide([*backlog, buffered(9)], 0.0, LANES).llm == ()
    assert decide([*backlog[:3], buffered(9)], 0.0, LANES).llm == (0, 1, 2, 9)
    short = [buffered(key, block_frames=40) for key in range(4)]
    assert decide([*short, buffered(9)], 0.0, LANES).llm != (), "four rows, but not two batches of frames"
    assert decide([*short, buffered(8, block_frames=40), buffered(9)], 0.0, LANES).llm == ()


def test_the_llm_yields_only_to_work_that_is_done() -> None:
    views = [IDLE._replace(key=1, block_frames=50), buffered(2)]
    assert decide(views, 0.0, LANES, Intake(num_blocks=0)) == Decision(llm=(2,))


@pytest.mark.parametrize("num_blocks", [0, 1])
def test_blocks_for_which_nothing_under_way_makes_room_lack_it(num_blocks: int) -> None:
    views = [IDLE._replace(key=1, block_frames=50, num_blocks=2), buffered(2)]
    intake = Intake(num_blocks=num_blocks, is_token2wav_idle=True)
    assert decide(views, 0.0, LANES, intake) == Decision(lacks_room=True), "an LLM's work makes none"
    assert not decide(views, 0.0, LANES, replace(intake, is_token2wav_idle=False)).lacks_room
    assert not decide(views, 0.0, LANES, replace(intake, num_blocks=2)).lacks_room
    small = IDLE._replace(key=3, block_frames=50, num_blocks=1)
    assert decide([*views, small], 0.0, LANES, intake).lacks_room is (num_blocks == 0), "another's fits"


def test_an_llm_on_a_device_of_its_own_makes_way_for_nobody() -> None:
    apart = replace(LANES, shares_device=False)
    starting = IDLE._replace(key=1, block_frames=50, wants_llm=True)
    assert decide([starting, buffered(2)], 0.0, apart) == Decision((1, 2), (1,))
    backlog = [buffered(key, block_frames=50) for key in range(4)]
    assert decide([*backlog, buffered(9)], 0.0, apart).llm == (0, 1, 2, 3, 9)


def test_batches_are_larger_where_all_have_plenty_left() -> None:
    limits = replace(LANES, buffered_flow_batch=whole(3))
    views = [IDLE._replace(key=key, deadline_s=2.0 + key, block_frames=50) for key in range(4)]
    assert decide(views, 0.0, limits).begins == (0, 1, 2)
    views[3] = views[3]._replace(deadline_s=0.5)
    assert decide(views, 0.0, limits).begins == (3, 0), "one of them is in a hurry"
    views[3] = views[3]._replace(block_frames=0, wants_llm=True)
    assert decide(views, 0.0, limits).begins == (0, 1), "one lacks tokens and will be in a hurry"
    assert decide(views[:3], 0.0, replace(limits, buffered_flow_batch=None)).begins == (0, 1)


# --- the length of a launch -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_frames", "of_first", "of_heard"),
    [(20, 200, 3), (400, 10, 3), (1300, 3, 3), (1700, 2, 2), (4200, 1, 1)],
)
def test_first_blocks_go_in_one_launch_and_no_launch_takes_long(num_frames: int, of_first: int, of_heard: int) -> None:
    assert euler_steps_at_once(num_frames, is_first=True) == of_first
    assert euler_steps_at_once(num_frames, is_first=False) == of_heard


def test_of_nothing_there_is_a_step() -> None:
    assert euler_steps_at_once(0, is_first=False) >= 1


# --- background work --------------------------------------------------------------------------------------------


GPU = Limits(flow_batch=whole(34), buffered_flow_batch=whole(84), is_concurrent=True)
# No listener waits for it: due at any time, and the deadline never comes.
BACKGROUND = IDLE._replace(deadline_s=math.inf, max_lead_s=math.inf)


def beside(
    views: Iterable[StreamView], background: Iterable[StreamView], limits: Limits = GPU, intake: Intake | None = None
) -> Decision:
    due, rest = ({view.key: (urgency(view, 0.0, limits)[0], view) for view in each} for each in (views, background))
    return policy.decide(due, limits, intake or Intake(), rest)


def texts_of(num: int, first_key: int = 100) -> list[StreamView]:
    return [BACKGROUND._replace(key=first_key + number, wants_llm=True) for number in range(num)]


def blocks_of(num: int, first_key: int = 200) -> list[StreamView]:
    return [BACKGROUND._replace(key=first_key + number, block_frames=50) for number in range(num)]


@pytest.mark.parametrize("limits", [GPU, replace(GPU, is_concurrent=False)])
def test_where_nothing_else_is_due_background_work_has_the_device(limits: Limits) -> None:
    assert len(beside([], texts_of(60), limits).llm) == 60
    assert len(beside([], blocks_of(100), limits).begins) == 34, "a new request would wait for a larger batch"


@pytest.mark.parametrize("num_steps", range(4))
@pytest.mark.parametrize(("num_live", "num_along"), [(3, 13), (15, 2), (40, 2)])
def test_background_work_fills_every_fourth_llm_step(num_live: int, num_along: int, num_steps: int) -> None:
    live = [IDLE._replace(key=key, wants_llm=True) for key in range(num_live)]
    rows = beside(live, texts_of(60), intake=Intake(num_llm_steps=num_steps)).llm
    assert rows == (*range(num_live), *range(100, 100 + (0 if num_steps else num_along)))


def test_a_background_prompt_is_read_alone_and_with_none_of_a_live_stream() -> None:
    live, prompts = IDLE._replace(key=1, wants_llm=True), [each._replace(needs_prefill=True) for each in texts_of(9)]
    assert beside([live], prompts).llm == (1, 100)
    assert beside([live._replace(needs_prefill=True)], prompts).llm == (1,), "a prompt takes as long as many rows"


def test_no_llm_step_is_made_for_background_work_alone_where_others_have_work() -> None:
    assert beside([IDLE._replace(deadline_s=0.5, block_frames=50)], texts_of(60)).llm == ()


def test_background_blocks_go_along_with_listeners_and_with_no_new_request() -> None:
    listener = IDLE._replace(key=1, deadline_s=0.5, block_frames=50)
    assert beside([listener], blocks_of(9)).begins == (1, 200, 201)
    assert beside([IDLE._replace(key=2, block_frames=50)], blocks_of(9)).begins == (2,)
    full = [listener._replace(key=key) for key in range(33)]
    assert beside(full, blocks_of(9)).begins == (*range(33), 200), "as far as there is room"
    assert beside([listener], blocks_of(9), intake=Intake(num_blocks=2)).begins == (1, 200)


def test_a_batch_of_background_work_is_finished_before_one_of_listeners_and_after_new_requests() -> None:
    running = BACKGROUND._replace(key=200, batch=7)
    listener = IDLE._replace(key=1, deadline_s=0.5, block_frames=50)
    assert beside([listener], [running]).advances == 7, "a GPU keeps few batches"
    new_request = IDLE._replace(key=2, block_frames=50)
    assert beside([listener, new_request], [running]).begins == (2,)
    assert beside([IDLE._replace(key=3, wants_llm=True)], [running]).holds_flow, "its first tokens have the device"


def test_on_one_processor_background_work_waits_until_nothing_else_is_due() -> None:
    limits = replace(GPU, is_concurrent=False)
    listener = IDLE._replace(key=1, deadline_s=0.5, block_frames=50)
    everything = [*texts_of(3), *blocks_of(3), BACKGROUND._replace(key=300, batch=7)]
    assert beside([listener], everything, limits) == beside([listener], [], limits)
