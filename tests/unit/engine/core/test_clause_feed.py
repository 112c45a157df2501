"""Text is read a bite at a time, when speech needs it; that changes nothing in what becomes of it."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.engine.core.clause import ClauseState
from voicegate.engine.core.clause_feed import READ_AHEAD_CLAUSES, ClauseFeed
from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.text.alignment import split_words
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.segmenter import TextSpan

MAX_CLAUSE_TOKENS = 750

PIECES = [
    *["Good morning. ", "How are you, ", "Dr.", " Smith", " 3", ".5", " million", "U.S. ", "1,234,", "word" * 40],
    *["\n```py\nx = 1\n```\n", "好。", "你好", "...", " ", "\n\n", "- an item\n", "[laughter]", "🙂", "\ud83d", "`"],
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=80)
modes = st.sampled_from([SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])


def new_feed(mode: SpeakingMode = SpeakingMode.CLAUSE, *, pronunciation: Pronunciation | None = None) -> ClauseFeed:
    return ClauseFeed(
        0,
        mode,
        tiny_tokenizer(),
        language="en",
        max_clause_tokens=MAX_CLAUSE_TOKENS,
        pronunciation=pronunciation,
    )


def begin(feed: ClauseFeed) -> None:
    """The oldest clause that waits becomes an LLM pass."""
    next(clause for clause in feed.clauses if clause.state is ClauseState.WAITING).state = ClauseState.GENERATING


def read_ahead(feed: ClauseFeed) -> None:
    while feed.wants_reading:
        feed.read()


def said(feed: ClauseFeed) -> list[object]:
    return [
        (clause.char_start, clause.text, clause.text_ids, clause.is_text_complete, clause.flush_ids)
        for clause in feed.clauses
    ]


# --- nothing depends on when text is read ---------------------------------------------------------------------

Step = str | int | None  # text, so many reads, a flush


@given(modes, st.lists(texts | st.integers(1, 9) | st.none(), max_size=12), st.booleans())
def test_any_order_of_pushes_and_reads_gives_the_same_clauses(
    mode: SpeakingMode, steps: list[Step], is_ended: bool
) -> None:
    read_between, read_at_once = new_feed(mode), new_feed(mode)
    for index, step in enumerate(steps):
        match step:
            case str():
                read_between.push(step)
                read_at_once.push(step)
            case int():
                for _ in range(step):
                    read_between.read()
            case None:
                read_between.flush(str(index))
                read_at_once.flush(str(index))
    if is_ended:
        read_between.end()
        read_at_once.end()
    read_between.read_all()
    read_at_once.read_all()
    assert said(read_between) == said(read_at_once)
    assert read_between.is_ended is read_at_once.is_ended is is_ended
    assert read_between.is_waiting is read_at_once.is_waiting
    assert read_between.text == "".join(step for step in steps if isinstance(step, str))


@given(modes, texts, st.integers(1, 20))
def test_any_split_gives_the_same_clauses(mode: SpeakingMode, text: str, size: int) -> None:
    whole, split = new_feed(mode), new_feed(mode)
    whole.push(text)
    for start in range(0, len(text), size):
        split.push(text[start : start + size])
        split.read_all()
    for feed in (whole, split):
        feed.end()
        feed.read_all()
    assert said(split) == said(whole)


# --- what comes is only recorded ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_nothing_is_read_before_it_is_asked_for(mode: SpeakingMode) -> None:
    feed = new_feed(mode)
    feed.push("Good morning. How are you? ")
    feed.flush("f")
    feed.end()
    assert not feed.clauses
    assert not feed.is_ended
    assert feed.wants_reading
    assert feed.text == "Good morning. How are you? "
    feed.read_all()
    assert feed.is_ended
    assert feed.clauses[-1].flush_ids == ["f"]
    assert not feed.wants_reading


def test_text_is_read_only_so_far_ahead() -> None:
    feed = new_feed()
    feed.push("This is a sentence of a few words. " * 1000)
    for num_begun in range(5):
        read_ahead(feed)
        assert len(feed.clauses) == num_begun + READ_AHEAD_CLAUSES
        begin(feed)


def test_a_bistream_pass_is_read_to_its_end_and_little_further() -> None:
    feed = new_feed(SpeakingMode.BISTREAM)
    feed.push("These are words without any end " * 1000)
    read_ahead(feed)
    begin(feed)
    read_ahead(feed)
    assert sum(clause.is_text_complete for clause in feed.clauses) == 1 + READ_AHEAD_CLAUSES


def test_a_flush_and_the_end_are_met_where_they_stand_in_the_text() -> None:
    feed = new_feed()
    feed.push("One sentence here. And")
    feed.flush("a")
    feed.push(" another sentence here. ")
    feed.flush("b")
    feed.flush("c")
    feed.push("Then the last one.")
    feed.end()
    feed.read_all()
    assert [(clause.text, clause.flush_ids) for clause in feed.clauses] == [
        ("One sentence here. ", []),
        ("And", ["a"]),
        (" another sentence here. ", ["b", "c"]),
        ("Then the last one.", []),
    ]


def test_a_flush_of_nothing_has_a_clause_of_its_own() -> None:
    feed = new_feed()
    feed.push("...")
    feed.flush("f")
    feed.read_all()
    (clause,) = feed.clauses
    assert clause.is_silent
    assert clause.flush_ids == ["f"]


# --- waiting and stalls are of text that was read to its end --------------------------------------------------


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_unread_text_does_not_wait_for_more(mode: SpeakingMode) -> None:
    feed = new_feed(mode)
    feed.push("Let me see ")
    assert not feed.is_waiting
    feed.stalled(says_half_words=False)
    assert not feed.clauses
    feed.read_all()
    assert feed.is_waiting
    feed.stalled(says_half_words=False)
    assert [clause.text for clause in feed.clauses] == ["Let me see"]
    assert feed.clauses[0].is_text_complete


# --- a sentence that is not finished --------------------------------------------------------------------------


def test_what_is_known_of_a_sentence_grows_in_one_clause() -> None:
    feed = new_feed(SpeakingMode.INCREMENTAL)
    for text, known, decided, num_sayable in (
        ("The", "The", "", 0),
        (" tra", "The tra", "The", 3),
        ("in to ", "The train to", "The train", 8),
    ):
        feed.push(text)
        read_ahead(feed)
        clause = feed.grow()
        assert clause is not None
        assert (clause.text, clause.num_sayable_letters, clause.is_text_complete) == (known, num_sayable, False)
        assert (clause.decided_text, clause.num_decided_letters) == (decided, num_sayable)
        assert list(feed.clauses) == [clause]
    feed.push("Boston. ")
    read_ahead(feed)
    assert (clause.text.strip(), clause.is_text_complete) == ("The train to Boston.", True)
    assert feed.grow() is None


@settings(deadline=None)
@example("._+:", 1)  # a plus, until the colon is there
@example(" Smith好。", 1)
@example("A,A", 1)  # as written one word
# Of what takes too long to say the first part may be known, and begun, before the end of it is: it is parted elsewhere.
@given(texts.map(lambda text: text.replace("1,234,", "").replace("word" * 40, "")), st.integers(1, 5))
def test_growing_changes_nothing_in_what_is_said_in_the_end(text: str, size: int) -> None:
    grown, at_once = new_feed(SpeakingMode.INCREMENTAL), new_feed(SpeakingMode.INCREMENTAL)
    decided: set[TextSpan] = set()
    for start in range(0, len(text), size):
        grown.push(text[start : start + size])
        while grown.has_unread:
            grown.read()
        clause = grown.grow()
        decided.update(split_words(clause.decided_text, clause.char_start) if clause is not None else ())
    at_once.push(text)
    for feed in (grown, at_once):
        feed.end()
        feed.read_all()
    assert [clause.text for clause in grown.clauses if clause.text_ids] == [
        clause.text for clause in at_once.clauses if clause.text_ids
    ]
    whole = {word.char_start: word.text for each in grown.clauses for word in split_words(each.text, each.char_start)}
    for word in decided:
        assert whole[word.char_start].startswith(word.text)
        assert not whole[word.char_start][len(word.text) :][:1].isalnum(), "it goes on"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("iPhone 15 Pro的价格是5999元。", "iPhone十五Pro的价格是五千九百九十九元。"),
        ("iPhone 15 Pro", "iPhone十五Pro."),
        ("iPhone 15 Pro Max 256GB版", "iPhone十五Pro Max两百五十六GB版。"),
        ("This is the iPhone 15 for you.", "This is the iPhone fifteen for you."),
    ],
)
def test_a_few_latin_words_that_may_go_on_in_the_language_of_the_utterance_do_not_decide(text: str, words: str) -> None:
    tokenizer = tiny_tokenizer()
    feed = ClauseFeed(0, SpeakingMode.INCREMENTAL, tokenizer, language="zh", max_clause_tokens=750)
    for char in text:
        feed.push(char)
        feed.read_all()
        feed.grow()
    feed.end()
    feed.read_all()
    assert feed.clauses[0].text_ids == list(tokenizer.encode_spoken(words))


@pytest.mark.parametrize(
    "pieces",
    [
        ["您好", "，您", "的取", "件码", "：", "123", "456"],
        ["好的", "，您", "的账户", "余额", "还有", "5", "20", "元"],
        ["感谢", "等待", "，您的取件码", "4", "82", "913"],
    ],
)
def test_what_may_have_been_said_of_a_sentence_may_be_said_for_good(pieces: list[str]) -> None:
    feed = new_feed(SpeakingMode.INCREMENTAL)
    before, num_sayable = "", 0
    for piece in pieces:
        feed.push(piece)
        feed.read_all()
        clause = feed.grow()
        assert clause is not None
        assert clause.decided_text.startswith(before)
        assert clause.num_sayable_letters >= num_sayable
        before, num_sayable = clause.decided_text, clause.num_sayable_letters
    feed.stalled(says_half_words=False)
    assert feed.clauses[0].text.startswith(before)


# --- words of a dictionary ------------------------------------------------------------------------------------

DICTIONARY = Pronunciation((Dictionary({"new york": "the big apple", "sql": "sequel"}),))


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_what_is_said_is_of_the_dictionary_and_the_text_stays_as_written(mode: SpeakingMode, size: int) -> None:
    feeds = [new_feed(mode, pronunciation=DICTIONARY), new_feed(mode)]
    for feed, text in zip(feeds, ["I love New York and SQL.", "I love the big apple and sequel."], strict=True):
        for start in range(0, len(text), size):
            feed.push(text[start : start + size])
            feed.read_all()
        feed.end()
        feed.read_all()
    written, said_out = feeds
    assert "".join(clause.text for clause in written.clauses) == "I love New York and SQL."
    assert [i for clause in written.clauses for i in clause.text_ids] == [
        i for clause in said_out.clauses for i in clause.text_ids
    ]


def test_of_a_phrase_that_is_being_written_nothing_is_decided() -> None:
    feed = new_feed(SpeakingMode.INCREMENTAL, pronunciation=DICTIONARY)
    decided = []
    for piece in ["I love", " New", " Yor", "k in", " June"]:
        feed.push(piece)
        feed.read_all()
        clause = feed.grow()
        decided.append("" if clause is None else clause.decided_text.strip())
    assert decided == ["I", "I love", "I love", "I love New York", "I love New York in"]


def test_what_can_be_said_of_a_sentence_is_guessed_without_its_last_word() -> None:
    feed = new_feed(SpeakingMode.INCREMENTAL)
    guesses = []
    for piece in (" ", "Well, ", "the", " train", " to the", "  "):
        feed.push(piece)
        feed.read_all()
        guesses.append(feed.pending_letters)
    assert guesses == [(0, 0), (0, 5), (5, 8), (8, 13), (15, 18), (15, 18)]


def test_of_a_formula_nothing_is_said_before_its_end() -> None:
    feed = new_feed(SpeakingMode.INCREMENTAL)
    decided = set()
    for piece in re.findall(r"\s?\S+", r"The roots are $x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$ here."):
        feed.push(piece)
        while feed.has_unread:
            feed.read()
        clause = feed.grow() if feed.has_growing else None
        if clause is not None:
            decided.add(clause.text)
    assert not any("$" in text and text.count("$") % 2 for text in decided)


def test_a_break_behind_a_pass_that_took_no_more_text_is_made() -> None:
    feed = new_feed(SpeakingMode.INCREMENTAL)
    feed.push("The train to the coast leaves — ")
    feed.read()
    clause = feed.grow()
    assert clause is not None
    begin(feed)
    feed.give_up(clause)
    assert clause.text == "The train to the coast leaves"
    feed.push('<break time="1s"/>')
    feed.end()
    feed.read_all()
    assert sum(each.pause_ms for each in feed.clauses) == 1000


@pytest.mark.parametrize("is_over", [False, True])
def test_of_a_pass_that_takes_no_more_text_only_the_rest_is_another_ones(is_over: bool) -> None:
    """Also where the sentence is over by then, and so long with the dictionary's words that it is parted."""
    feed = new_feed(SpeakingMode.INCREMENTAL, pronunciation=Pronunciation((Dictionary({"sql": "query" * 25}),)))
    feed.push("The train to the coast lea")
    feed.read()
    clause = feed.grow()
    assert clause is not None
    begin(feed)
    if is_over:
        feed.push("ves with SQL or SQL. ")
        feed.read()
        assert feed._spans
    feed.give_up(clause)
    if not is_over:
        feed.push("ves with SQL or SQL. ")
    feed.end()
    feed.read_all()
    assert clause.is_text_complete
    assert clause.text == "The train to the coast"
    assert "".join(each.text for each in feed.clauses) == "The train to the coast leaves with SQL or SQL. "
