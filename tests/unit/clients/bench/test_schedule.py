"""Scenarios by name, and the visits that they become."""

import random
from itertools import pairwise

import pytest

from voicegate.clients.bench.plan import Reader
from voicegate.clients.bench.scenario import Kind, Scenario, UnknownScenario, Writer, parse
from voicegate.clients.bench.schedule import Settings, schedule, written
from voicegate.clients.bench.sentences import ENGLISH, LANGUAGES, words

SETTINGS = Settings(voices=("anna", "bob"), duration_s=20.0)


@pytest.mark.parametrize(
    "name", ["alone:whole", "alone:20j", "live:128:whole", "live:400:12.5", "mixed:400", "closed:8:whole"]
)
def test_a_scenario_is_named_as_it_is_written(name: str) -> None:
    assert str(parse(name)) == name


@pytest.mark.parametrize(
    "name", ["", "alone", "alone:fast", "live:0", "live:x:whole", "mixed:4:whole", "live:8:0", "x:1"]
)
def test_what_is_no_scenario_is_told_how_they_are_written(name: str) -> None:
    with pytest.raises(UnknownScenario, match="mixed:N"):
        parse(name)


@pytest.mark.parametrize("text", [*ENGLISH.sentences, *ENGLISH.paragraphs, *LANGUAGES["zh"].sentences])
def test_words_make_the_text_again(text: str) -> None:
    assert "".join(words(text)) == text


def test_words_are_words_and_characters() -> None:
    assert words("So, is it  on?") == ["So,", " is", " it", "  on?"]
    assert words("好的，OK吗？") == ["好", "的，", "OK", "吗？"]


def test_a_steady_writer_has_equal_times_and_a_jittery_one_the_same_mean() -> None:
    text = " ".join(["word"] * 2_000)
    steady, jittery = (written(text, Writer(20, has_jitter), random.Random(1)) for has_jitter in (False, True))
    assert [piece.at_s for piece in steady[:3]] == pytest.approx([0.0, 0.05, 0.1])
    assert jittery[-1].at_s == pytest.approx(100.0, rel=0.1)
    gaps_s = [after.at_s - before.at_s for before, after in pairwise(jittery)]
    assert min(gaps_s) < 0.005
    assert max(gaps_s) > 0.2


def test_the_same_seed_gives_the_same_visits() -> None:
    first, second = (schedule(parse("mixed:8"), SETTINGS) for _ in range(2))
    assert first == second
    assert first != schedule(parse("mixed:8"), Settings(voices=("anna", "bob"), duration_s=20.0, seed=1))


def test_a_mixed_load_is_as_the_name_promises() -> None:
    visits = schedule(parse("mixed:400"), SETTINGS).visits
    turns = [turn for visit in visits for turn in visit.turns]
    assert {turn.words_per_s for turn in turns} == {None, 10.0, 20.0, 40.0}
    assert {turn.voice for turn in turns} == {"anna", "bob"}
    interrupted = [visit for visit in visits if visit.turns[0].cancel_after_s is not None]
    assert 0.15 < len(interrupted) / len(visits) < 0.25
    assert all(len(visit.turns) == 2 and visit.turns[1].cancel_after_s is None for visit in interrupted)
    assert 0.01 < sum(visit.reader is Reader.SLOW for visit in visits) / len(visits) < 0.08


@pytest.mark.parametrize("name", ["live:100:whole", "live:100:10j"])
def test_so_many_arrive_that_as_many_as_wanted_are_live(name: str) -> None:
    made = schedule(parse(name), Settings(duration_s=100.0, seconds_per_letter=0.06))
    begin_s, end_s = made.window_s
    live_s = 0.0
    for visit in made.visits:
        (turn,) = visit.turns
        lasts_s = max(len(turn.text) * 0.06, turn.writing_s)
        live_s += max(min(visit.due_s + lasts_s, end_s) - max(visit.due_s, begin_s), 0.0)
    assert live_s / (end_s - begin_s) == pytest.approx(100, rel=0.1)
    assert made.visits[-1].due_s > end_s  # the load goes on while the last are heard


def test_alone_and_closed() -> None:
    alone = schedule(Scenario(Kind.ALONE), Settings(num_alone=7))
    assert [len(visit.turns) for visit in alone.visits] == [7]
    closed = schedule(parse("closed:4"), SETTINGS)
    assert len(closed.visits) == 4
    assert all(turn.is_hurried for visit in closed.visits for turn in visit.turns)
