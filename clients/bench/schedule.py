"""A scenario as visits: who begins when, what is written, how long it is heard. Pure; the same for the same seed."""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from voicegate.clients.bench.plan import Piece, Reader, Turn, Visit
from voicegate.clients.bench.scenario import MIXED_WRITERS, WHOLE, Kind, Scenario, Writer
from voicegate.clients.bench.sentences import ENGLISH, Texts, words

# Shares of what is said: most turns are a sentence.
_SHORT_SHARE: Final = 0.2
_PARAGRAPH_SHARE: Final = 0.1
# Share of a mixed load.
_INTERRUPTED_SHARE: Final = 0.2
_SLOW_SHARE: Final = 0.04
_INTERRUPTED_AFTER_S: Final = (0.2, 2.0)
# One stream alone: heard for so long, which the second block falls into; then another, not in step with anything.
_ALONE_HEARD_S: Final = 0.6
_ALONE_PAUSE_S: Final = (0.05, 0.15)
# Beyond the longest turn: leads that have to build up, late starts.
_SETTLE_S: Final = 2.0
# On average, in an open load's window: few streams are measured for longer.
_LEAST_ARRIVALS: Final = 6
# Turns of one visit of a closed load; its time is over long before.
_CLOSED_TURNS: Final = 200


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run, for all its scenarios."""

    voices: Sequence[str | None] = (None,)
    mode: str = "auto"
    texts: Texts = ENGLISH
    seconds_per_letter: float = 0.06  # of speech; measured as soon as something has been heard
    duration_s: float = 10.0  # turns that begin within it are measured
    num_alone: int = 20
    alone_limit_s: float = 60.0
    seed: int = 0

    def conditions(self) -> dict[str, Any]:
        """For results: what it takes to have the same load again, beside each scenario's `seconds_per_letter`."""
        said = "\n".join((*self.texts.short, *self.texts.sentences, *self.texts.paragraphs))
        return {
            "mode": self.mode,
            "voices": list(self.voices),
            "seed": self.seed,
            "duration_s": self.duration_s,
            "num_alone": self.num_alone,
            "texts_sha256": hashlib.sha256(said.encode()).hexdigest(),
        }


@dataclass(frozen=True, slots=True)
class Schedule:
    visits: tuple[Visit, ...]
    window_s: tuple[float, float]  # turns that begin in it are measured
    last_start_s: float
    stop_s: float


def schedule(scenario: Scenario, settings: Settings) -> Schedule:
    author = _Author(settings, random.Random(f"{scenario} {settings.seed}"))
    match scenario.kind:
        case Kind.ALONE:
            return _alone(scenario, settings, author)
        case Kind.CLOSED:
            return _closed(scenario, settings, author)
        case Kind.LIVE | Kind.MIXED:
            return _open(scenario, settings, author)


def poisson_starts_s(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """Without end, from 0 on; the first is not at 0."""
    start_s = 0.0
    while True:
        start_s += rng.expovariate(rate_per_s)
        yield start_s


def written(text: str, writer: Writer, rng: random.Random) -> tuple[Piece, ...]:
    """The text as it comes; the first piece at 0."""
    if writer.words_per_s is None:
        return (Piece(text, 0.0),)
    at_s, pieces = 0.0, []
    for index, word in enumerate(words(text)):
        if index:
            at_s += (rng.expovariate(1.0) if writer.has_jitter else 1.0) / writer.words_per_s
        pieces.append(Piece(word, at_s))
    return tuple(pieces)


class _Author:
    """Draws what is said, by whom, how it comes, and how it is heard."""

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.rng = rng
        self._settings = settings

    def text(self) -> str:
        texts, share = self._settings.texts, self.rng.random()
        if share < _SHORT_SHARE:
            return self.rng.choice(texts.short)
        if share < _SHORT_SHARE + _PARAGRAPH_SHARE:
            return self.rng.choice(texts.paragraphs)
        return self.rng.choice(texts.sentences)

    def turn(self, writer: Writer, text: str | None = None) -> Turn:
        pieces = written(self.text() if text is None else text, writer, self.rng)
        voice = self.rng.choice(self._settings.voices)
        return Turn(pieces, voice, self._settings.mode, writer.words_per_s)

    def mixed_visit(self, due_s: float) -> Visit:
        turn = self.turn(self.rng.choice(MIXED_WRITERS))
        if self.rng.random() < _INTERRUPTED_SHARE:
            interrupted = replace(turn, cancel_after_s=self.rng.uniform(*_INTERRUPTED_AFTER_S))
            return Visit(due_s, (interrupted, self.turn(self.rng.choice(MIXED_WRITERS))))
        is_slow = self.rng.random() < _SLOW_SHARE
        return Visit(due_s, (turn,), Reader.SLOW if is_slow else Reader.PROMPT)

    def visit_s(self, visit: Visit) -> float:
        return sum(self.turn_s(turn) for turn in visit.turns)

    def turn_s(self, turn: Turn) -> float:
        """From its first text until it has been played out, or interrupted, roughly."""
        if turn.cancel_after_s is not None:
            return turn.cancel_after_s
        return max(len(turn.text) * self._settings.seconds_per_letter, turn.writing_s)


def _alone(scenario: Scenario, settings: Settings, author: _Author) -> Schedule:
    texts = settings.texts.short if scenario.writer == WHOLE else settings.texts.sentences
    turns = []
    for index in range(settings.num_alone):
        turn = author.turn(scenario.writer, texts[index % len(texts)])
        pause_s = author.rng.uniform(*_ALONE_PAUSE_S)
        turns.append(replace(turn, cancel_after_s=_ALONE_HEARD_S, pause_s=pause_s))
    limit_s = settings.alone_limit_s
    return Schedule((Visit(0.0, tuple(turns)),), (0.0, limit_s), limit_s, limit_s + _SETTLE_S)


def _closed(scenario: Scenario, settings: Settings, author: _Author) -> Schedule:
    """No ramp and no think time."""
    visits: list[Visit] = []
    for _ in range(scenario.num_streams):
        drawn = (author.turn(scenario.writer) for _ in range(_CLOSED_TURNS))
        visits.append(Visit(0.0, tuple(replace(turn, is_hurried=True) for turn in drawn)))
    longest_s = max(author.turn_s(turn) for visit in visits for turn in visit.turns)
    end_s = settings.duration_s
    return Schedule(tuple(visits), (0.0, end_s), end_s, end_s + longest_s + _SETTLE_S)


def _open(scenario: Scenario, settings: Settings, author: _Author) -> Schedule:
    """The load goes on until the measured have been heard."""
    is_mixed = scenario.kind is Kind.MIXED

    def visit(due_s: float) -> Visit:
        return author.mixed_visit(due_s) if is_mixed else Visit(due_s, (author.turn(scenario.writer),))

    drawn = [visit(0.0) for _ in range(1000)]
    lengths_s = [author.visit_s(each) for each in drawn]
    mean_s = _mean(iter(lengths_s))
    begin_s = mean_s + _SETTLE_S
    end_s = begin_s + max(settings.duration_s, _LEAST_ARRIVALS * mean_s / scenario.num_streams)
    stop_s = end_s + max(lengths_s) + _SETTLE_S
    visits = []
    for start_s in poisson_starts_s(scenario.num_streams / mean_s, author.rng):
        if start_s >= stop_s - _SETTLE_S:
            break
        visits.append(visit(start_s))
    return Schedule(tuple(visits), (begin_s, end_s), stop_s, stop_s)


def _mean(values: Iterator[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
