"""Word by word, lines, brackets and dashes make the pauses that they make of the whole text."""

import pytest

from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.text.phrase_breaks import PhraseBreaks


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Plan:\n1. Eat at 9\n2. Rest", "Plan: one. Eat at nine. two. Rest."),
        ("Dinner\n\nAnything else?", "Dinner. Anything else?"),
        ("## Title\n\nText here\nand there", "Title. Text here and there."),
        ("Buy:\n- eggs\n- milk", "Buy: eggs. milk."),
        ("It is free (for now) — really.", "It is free, for now, really."),
        ("A fact - it is - so.", "A fact, it is, so."),
        ("Well, (yes) no", "Well, yes, no."),
        ("我喜欢\n- 苹果\n- 香蕉", "我喜欢。苹果。香蕉。"),
        ("他说（真的）好", "他说，真的，好。"),
        ("a well-known one", "a well-known one."),
    ],
)
def test_pauses_are_kept(text: str, spoken: str) -> None:
    feed = ClauseFeed(0, SpeakingMode.BISTREAM, tiny_tokenizer(), language="en", max_clause_tokens=750)
    for char in text:
        feed.push(char)
        while feed.has_unread:
            feed.read()
    feed.end()
    while feed.has_unread:
        feed.read()
    ids = [id_ for clause in feed.clauses for id_ in clause.text_ids]
    assert tuple(ids) == tiny_tokenizer().encode_spoken(spoken)


def test_what_is_not_said_leaves_its_pause_to_what_follows() -> None:
    breaks = PhraseBreaks()
    assert breaks.begin("eggs", "eggs") == "eggs"
    assert breaks.go_on("\n- ", "") == ""
    assert breaks.go_on("milk", "milk") == ". milk"
    assert breaks.go_on(" tea", "tea") == " tea"
