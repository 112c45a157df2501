"""Codes, seats and states are read as such when what names them was said before, in another span."""

import pytest

from voicegate.engine.text.normalize import SpanReader, speakable
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan


@pytest.mark.parametrize(
    ("spans", "spoken"),
    [
        (
            ["This is your code:", " 482913."],
            "This is your code: four eight two nine one three.",
        ),
        (["Your code is", " 482913."], "Your code is four eight two nine one three."),
        (["Your code", " is 482913."], "Your code is four eight two nine one three."),
        (["The PIN: ", "**4821**"], "The pin: four eight two one"),
        (["This is your code:", " “482913”."], "This is your code: four eight two nine one three."),
        (["The confirmation #:", " 482913."], "The confirmation number: four eight two nine one three."),
        (["**Your last order:**", " #48213"], "Your last order: number four eight two one three"),
        (["The last 4 digits:", " 4821"], "The last four digits: four eight two one"),
        (["All in order:", " 4821"], "All in order: four thousand eight hundred and twenty-one"),
        (["King Louis", " XIV of", " France"], "King Louis the fourteenth of France"),
        (["Part", " IV of", " it"], "Part four of it"),
        (["Go to Gate", " 22B now."], "Go to Gate twenty-two B now."),
        (["downtown Chicago,", " IL and on."], "downtown Chicago, Illinois and on."),
        (["Austin,", " TX", " 78701"], "Austin, Texas seven eight seven zero one"),
        (["Call", " 311."], "Call three one one."),
        (["We have", " 482913."], "We have four hundred and eighty-two thousand nine hundred and thirteen."),
        (["It has 5 codes.", " 300 of us left."], "It has five codes. three hundred of us left."),
        (["Open 9 AM", " – 5 PM", " or 3", " – 4", " - 5"], "Open nine A M to five P M or three to four five"),
        (["if x", " ==", " 3"], "if x equals three"),
        (["Press", " *", " or press", " *67"], "Press star or press star six seven"),
        (["Card", " ****", " 4242"], "Card ending in four two four two"),
        (
            ["Your card number is ", "4111 1111 1111 1111."],
            f"Your card number is{' four one one one,' + ' one one one one,' * 3}"[:-1] + ".",
        ),
        (
            ["Your card number is 4111 1111", " 1111 1111."],
            "Your card number is four one one one, one one one one one one one one, one one one one.",
        ),
        (["Your PIN is 48", "21, ok."], "Your pin is forty-eight two one, ok."),
        (["The ZIP is ", "02139"], "The zip is zero two one three nine"),
        (["The serial number is", " SN-48X2-9931"], "The serial number is S N, four eight X two, nine nine three one"),
        (["Call me at 415-", "555-2671."], "Call me at four hundred and fifteen five five five, two six seven one."),
        (["Your appointment is ", "2/14 at 2pm."], "Your appointment is February fourteenth at two P M."),
        (
            ["In", " 1999 sales", " rose to", " 1234 dollars"],
            "In nineteen ninety-nine sales rose to one thousand two hundred and thirty-four dollars",
        ),
        (["the barcode", " 100% of it"], "the barcode one hundred percent of it"),
    ],
)
def test_what_was_said_before_decides(spans: list[str], spoken: str) -> None:
    reader, words, start = SpanReader("en"), [], 0
    for text in spans:
        span = TextSpan(text, start, start + len(text))
        words.append(reader.read(span))
        reader.note_said(span)
        start = span.char_end
    assert " ".join(filter(None, words)) == spoken


@pytest.mark.parametrize(
    "text",
    [
        "Your code is **482913**, for seat 14B.",
        "It goes to Austin, TX 78701, card ending in 4242.",
        "Call 311, or dial 911.",
    ],
)
def test_word_by_word_it_is_what_it_is_at_once(text: str) -> None:
    segmenter = Segmenter(SegmenterConfig(granularity=Granularity.WORD))
    reader, words = SpanReader("en"), []
    for span in [*segmenter.push(text), *segmenter.flush()]:
        words.append(reader.read(span))
        reader.note_said(span)
    assert " ".join(filter(None, words)) == speakable(text)
