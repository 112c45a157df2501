"""Jobs become rows: what a stream knows, what is new and what is advanced by add up, however a job is cut."""

import pytest
import torch

from voicegate.engine import units
from voicegate.engine.vocoder.backend import VocoderJob, VocoderStream
from voicegate.engine.vocoder.cuda.calls import PlannedRow, group_calls, plan_rows
from voicegate.engine.vocoder.cuda.rows import NUM_FIELDS, idle_row

LOOK_RIGHT = 4


def plan(stream: VocoderStream, num_new: int, *, is_final: bool = False, max_frames: int = 50) -> list[PlannedRow]:
    mel = torch.zeros(units.NUM_MELS, num_new)
    return plan_rows(0, VocoderJob(stream, mel, is_final), mel, look_right=LOOK_RIGHT, max_frames=max_frames)


def test_a_first_block_holds_four_frames_back() -> None:
    (planned,) = plan(VocoderStream(7), 20)
    row = planned.row
    assert (row.slot, row.num_frames, row.is_first, row.is_final) == (7, 16, 1, 0)
    assert (row.start_frame, row.num_lookahead, row.num_new) == (0, 0, 20)
    assert planned.lookahead_after == LOOK_RIGHT


def test_a_later_block_begins_with_them() -> None:
    (planned,) = plan(VocoderStream(0, num_lookahead=4, num_frames=16), 50)
    assert (planned.row.num_frames, planned.row.is_first, planned.row.start_frame) == (50, 0, 16)


def test_the_last_block_gives_them_out() -> None:
    (planned,) = plan(VocoderStream(0, num_lookahead=4, num_frames=16), 7, is_final=True)
    assert (planned.row.num_frames, planned.row.is_final) == (11, 1)


def test_frames_too_few_to_advance_are_kept() -> None:
    (planned,) = plan(VocoderStream(0, num_lookahead=1), 2)
    assert (planned.row.num_frames, planned.row.num_lookahead, planned.row.num_new) == (0, 1, 2)
    assert planned.lookahead_after == 3


def test_nothing_new_is_no_row() -> None:
    assert plan(VocoderStream(0), 0, is_final=True) == []
    assert plan(VocoderStream(0, num_lookahead=4, num_frames=9), 0) == []


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("num_new", [1, 4, 5, 49, 50, 51, 100, 163])
@pytest.mark.parametrize("num_lookahead", [0, 3, 4])
def test_a_long_job_is_cut_without_a_gap(num_lookahead: int, num_new: int, is_final: bool) -> None:
    stream = VocoderStream(0, num_lookahead=num_lookahead, num_frames=30)
    mel = torch.zeros(num_new, units.NUM_MELS).T  # a frame's bands side by side
    rows = plan_rows(0, VocoderJob(stream, mel, is_final), mel, look_right=LOOK_RIGHT, max_frames=50)
    known, start, taken = num_lookahead, 30, 0
    for planned in rows:
        row = planned.row
        assert (row.num_lookahead, row.start_frame) == (known, start)
        assert row.mel_address == mel.data_ptr() + taken * units.NUM_MELS * mel.element_size()
        assert (row.band_stride, row.frame_stride) == (1, units.NUM_MELS)
        assert row.num_frames <= 50
        assert row.num_new <= num_new - taken
        known, start, taken = planned.lookahead_after, start + row.num_frames, taken + row.num_new
    expected = num_lookahead + num_new if is_final else max(0, num_lookahead + num_new - LOOK_RIGHT)
    assert (start - 30, taken) == (expected, num_new)
    assert [planned.row.is_final for planned in rows] == [0] * (len(rows) - 1) + [int(is_final)]


def test_calls_hold_a_batch_the_longest_first_and_a_stream_once() -> None:
    plans = [plan(VocoderStream(slot), 10 + 30 * slot, is_final=True) for slot in range(4)]
    calls = group_calls(plans, max_batch=2)
    assert all(len({planned.row.slot for planned in call}) == len(call) <= 2 for call in calls)
    for slot, each in enumerate(plans):
        frames = [planned.row.num_frames for call in calls for planned in call if planned.row.slot == slot]
        assert frames == [planned.row.num_frames for planned in each]
    lengths = [[planned.row.num_frames for planned in call] for call in calls]
    assert all(length == sorted(length, reverse=True) for length in lengths)


def test_a_row_is_as_wide_as_the_table() -> None:
    assert len(idle_row(3)) == NUM_FIELDS
    assert idle_row(3).num_frames == 0
