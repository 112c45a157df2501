"""bench.pace: how sentences are begun on its clock, alone and as among others' streams, and what it reports of them."""

import argparse
import random
from dataclasses import replace

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG
from voicegate.bench.pace.__main__ import cases, compared, jobs_of, parse_block_times, report
from voicegate.bench.pace.simulation import IDLE, BlockTimes, Simulation, Spoken, StepTimes
from voicegate.bench.pace.speaker import Case, Outcome
from voicegate.bench.pace.writer import Pace, Pieces, written
from voicegate.engine.interface import SpeakingMode

_SENTENCE = "The train to the coast leaves at nine, and the other one a quarter later, from behind the station"
_WHOLE, _PACED = Pace(1.0, pieces=Pieces.WHOLE), Pace(20.0)
_STRAINED, _LATE = BlockTimes(0.4, 0.0), BlockTimes(0.0, 0.9)


def spoken(simulation: Simulation, pace: Pace = _PACED) -> Spoken:
    pieces = written(_SENTENCE, pace, random.Random(0))
    return simulation.speak(pieces, "rms", SpeakingMode.INCREMENTAL, seed=1)


@pytest.mark.parametrize(("others", "num_blocks"), [(IDLE, 1), (_STRAINED, 2), (_LATE, 2)])
def test_among_others_whose_blocks_take_long_each_sentence_begins_with_two_blocks(
    others: BlockTimes, num_blocks: int
) -> None:
    simulation = Simulation(CONFIG, hollow().stages, StepTimes(), others=others)
    assert [spoken(simulation).num_first_blocks for _ in range(3)] == [num_blocks] * 3


def test_a_sentence_that_is_there_whole_is_not_begun_early() -> None:
    simulation = Simulation(CONFIG, hollow().stages, StepTimes(), others=_STRAINED)
    assert spoken(simulation).num_first_blocks == 2
    assert spoken(simulation, _WHOLE).num_first_blocks == 0


def test_whole_text_comes_first_and_only_incremental_is_spoken_among_others() -> None:
    modes = [SpeakingMode.CLAUSE, SpeakingMode.INCREMENTAL]
    each = list(cases(modes, [20.0], pieces=Pieces.LEADING, has_rough=False, block_times=[IDLE, _STRAINED]))
    assert [case.name for case in each] == [
        "whole",
        "clause 20/s",
        "incremental 20/s",
        "incremental 20/s blocks 0.4:0 s",
    ]


def test_runs_with_other_first_seeds_share_none() -> None:
    case = Case(SpeakingMode.INCREMENTAL, _PACED)
    first, next_ = (
        {job.seed for job in jobs_of(case, ["a", "b"], ["rms"], seeds)} for seeds in (range(2), range(2, 3))
    )
    assert (first, next_) == ({0, 1, 2, 3}, {4, 5})


def test_turns_are_two_times() -> None:
    assert parse_block_times("0.4:0.3") == BlockTimes(0.4, 0.3)
    for wrong in ("0.4", "a:b", "-1:0", "0:inf", "nan:0"):
        with pytest.raises(argparse.ArgumentTypeError, match=wrong):
            parse_block_times(wrong)


def outcome(num_errors: int, num_first_blocks: int) -> Outcome:
    return Outcome(
        num_errors,
        num_words=10,
        first_audio_s=0.1,
        gaps_s=(),
        pauses_s=(0.2,),
        rise=None,
        audio_s=3.0,
        num_first_blocks=num_first_blocks,
    )


def test_errors_are_told_against_those_of_whole_text_sentence_by_sentence() -> None:
    whole = [outcome(num_errors, 0) for num_errors in (1, 2, 3)]
    paced = [outcome(num_errors, num_blocks) for num_errors, num_blocks in ((2, 2), (2, 2), (3, 1))]
    assert compared(paced, whole) == (1, 1.0)
    assert compared(paced, [replace(each, num_errors=0) for each in paced]) == (7, 1.0)
    row = report(Case(SpeakingMode.INCREMENTAL, _PACED, _STRAINED), paced, whole)
    assert (row["errors"], row["words"]) == (7, 30)
    assert row["more_errors_than_whole"] == {"sum": 1, "standard_error": 1.0}
    assert row["begun_with_blocks"] == {"1": 1, "2": 2}
