"""Reading is bounded a bite and linear in all, whatever the text. Calls are counted."""

import gc
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import pytest

from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.engine.core.clause_feed import BITE_CHARS, ClauseFeed
from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.text.pronunciation import Pronunciation

MODES = [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM]
# A call of Python or C takes about 0.1 us: a bite of so many is below a millisecond, but for what its patterns scan.
MAX_CALLS_A_BITE = 10_000


Unit = Callable[[random.Random], str]


def _always(unit: str) -> Unit:
    return lambda _: unit


# Units that a message repeats.
UNITS: Final[dict[str, Unit]] = {
    "prose": _always("The quick brown fox jumps over the lazy dog, and then it sleeps for a while under a tree. "),
    "Chinese prose": _always("他们到的时候，房子里已经没有人了，谁也不知道钥匙放在哪里。"),
    "tokens of an LLM's list": lambda rng: (
        f"{rng.randrange(100)}. **Item {rng.random():.3f}** costs ${rng.randrange(9999)}.\n"
    ),
    "counts": lambda rng: f"{rng.randrange(1000, 9999):,}, ",
    "counts without blanks": lambda rng: f"{rng.randrange(1000, 9999):,},",
    "amounts": lambda rng: f"${rng.randrange(10**6):,}.{rng.randrange(10, 99)} ",
    "digits": lambda rng: str(rng.randrange(10)),
    "decimals": lambda rng: f"{rng.randrange(10)}.",
    "times": lambda rng: f"{rng.randrange(10)}:",
    "letters and digits": lambda rng: f"a{rng.randrange(10)}",
    "Chinese counts": lambda rng: f"有{rng.randrange(10**7)}个，",
    "Chinese digits": lambda rng: f"{rng.randrange(10)}年",
    "Chinese amounts": lambda rng: f"￥{rng.random() * 1000:.2f}",
    "one word": _always("x"),
    "one Chinese word": _always("好"),
    "dots": _always("."),
    "line feeds": _always("\n"),
    "blanks": _always(" "),
    "combining marks": _always("e" + "\u0301" * 20),
    "phrases in a character": _always("\ufdfa"),
    "think tags": _always("<think>"),
    "open tags": _always("<a "),
    "open links": _always("[a](b"),
    "closed links": _always("[a](http://b.c/d) "),
    "backticks": _always("`"),
    "fences": _always("```\n"),
    "dollars": _always("$"),
    "formulas": _always("$x^2_i$ "),
    "fractions": _always("\\frac{1}{2}"),
    "addresses": _always("a_b@c.de "),
    "dots in letters": _always("a."),
    "abbreviations": _always("Dr. "),
    "initials": _always("A. "),
    "list items": _always("- a\n"),
    "tables": _always("| 1 "),
    "quotation marks": _always('"'),
    "laughter": _always("[laughter]"),
    "emoji": _always("👨\u200d👩"),
    "entities": _always("&amp;"),
    "letters by name": _always("WX "),
    "signs": _always("≥ a "),
}


def message(name: str, *, num_chars: int, seed: int = 0) -> str:
    """A message of the named unit, so many characters."""
    rng, unit = random.Random(seed), UNITS[name]
    parts: list[str] = []
    length = 0
    while length < num_chars:
        parts.append(unit(rng))
        length += len(parts[-1])
    return "".join(parts)[:num_chars]


class CallCounter:
    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        self.num_calls += event in ("call", "c_call")

    def __enter__(self) -> "CallCounter":
        gc.disable()  # else finalizers of what other tests have left may be counted
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()


def new_feed(mode: SpeakingMode) -> ClauseFeed:
    return ClauseFeed(0, mode, tiny_tokenizer(), language="en", max_clause_tokens=750)


def calls_of_bites(text: str, mode: SpeakingMode) -> list[int]:
    feed = new_feed(mode)
    feed.push(text)
    feed.end()
    bites: list[int] = []
    while feed.has_unread:
        with CallCounter() as counter:
            feed.read()
        bites.append(counter.num_calls)
        while feed.clauses and feed.clauses[0].is_text_complete:  # as if spoken
            feed.clauses.popleft()
    return bites


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", UNITS)
def test_a_bite_is_bounded_and_all_of_them_are_linear(name: str, mode: SpeakingMode) -> None:
    short = calls_of_bites(message(name, num_chars=400), mode)
    long = calls_of_bites(message(name, num_chars=1_600), mode)
    assert max(long) < MAX_CALLS_A_BITE
    assert sum(long) < 5 * sum(short)


@pytest.mark.parametrize("mode", [*MODES, SpeakingMode.INCREMENTAL])
def test_a_bite_is_bounded_also_where_each_word_is_said_with_many(mode: SpeakingMode) -> None:
    dictionary = Dictionary({letter: f"one {'9' * 100} {letter * 20}" for letter in "abcdefgh"})
    feed = ClauseFeed(
        *(0, mode, tiny_tokenizer()),
        language="en",
        max_clause_tokens=750,
        pronunciation=Pronunciation((dictionary,)),
    )
    calls = []
    for _ in range(30):
        feed.push("a b c d ")
        while feed.has_unread:
            with CallCounter() as counter:
                feed.read()
            calls.append(counter.num_calls)
        with CallCounter() as counter:
            feed.grow()
        calls.append(counter.num_calls)
        while feed.clauses and feed.clauses[0].is_text_complete:  # as if spoken
            feed.clauses.popleft()
    assert max(calls) < 2 * MAX_CALLS_A_BITE  # where a span of 120 words is parted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_chars", [1, 100_000, 1_000_000])
def test_a_message_is_only_recorded(num_chars: int, mode: SpeakingMode) -> None:
    feed = new_feed(mode)
    with CallCounter() as counter:
        feed.push("7" * num_chars)
        feed.flush("f")
        feed.end()
    assert counter.num_calls < 20


@pytest.mark.parametrize("mode", MODES)
def test_a_bite_cuts_no_more_than_its_characters(mode: SpeakingMode) -> None:
    feed = new_feed(mode)
    feed.push("\n" * 10_000)
    num_bites = 0
    while feed.has_unread:
        feed.read()
        num_bites += 1
    assert num_bites >= 10_000 // BITE_CHARS


@pytest.mark.parametrize("mode", MODES)
def test_asking_whether_to_read_costs_the_same_however_much_is_unread(mode: SpeakingMode) -> None:
    feed = new_feed(mode)
    feed.push("Yes. " * 100_000)
    while feed.wants_reading:
        feed.read()
    with CallCounter() as counter:
        assert not feed.wants_reading
    assert counter.num_calls < 50
