"""What is said of what is written, and what holds for any text."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.characters import has_han
from engine.text.normalize import speakable

pytestmark = pytest.mark.unit

NUMBERS = [
    ("3", "three"),
    ("0", "zero"),
    ("42", "forty-two"),
    ("1024", "one thousand and twenty-four"),
    ("150000", "one hundred and fifty thousand"),
    ("1,000", "one thousand"),
    ("1,000,000", "one million"),
    ("1,234,567", "one million two hundred and thirty-four thousand five hundred and sixty-seven"),
    ("2000000", "two million"),
    ("3.14", "three point one four"),
    ("0.05", "zero point zero five"),
    ("1,000.50", "one thousand point five zero"),
    (".5", "point five"),
    ("-3", "minus three"),
    ("−3.5", "minus three point five"),
    ("007", "zero zero seven"),
    ("5551234", "five five five one two three four"),
    ("5551234567", "five five five one two three four five six seven"),
    ("12345678901234567890", " ".join(["one two three four five six seven eight nine zero"] * 2)),
    ("٣ ३ ３", "three three three"),
    ("1" + "0" * 500, "one" + " zero" * 500),
    ("$1" + "0" * 20_000, "one" + " zero" * 20_000 + " dollars"),
    ("It is 5. And 6.", "It is five. And six."),
    ("1st 2nd 3rd 21st 100th", "first second third twenty-first one hundredth"),
    ("1/2 and 3/4, 2/3, 7/8", "one half and three quarters, two thirds, seven eighths"),
    ("2 1/2 or 2½ or ½", "two and a half or two and a half or one half"),
    ("10/3", "ten over three"),
    ("24/7", "twenty-four seven"),
    ("3-5 times", "three to five times"),
    ("pages 10–12", "pages ten to twelve"),
    ("16:9", "sixteen to nine"),
    ("2+2=4", "two plus two equals four"),
    ("5 - 3", "five minus three"),
    ("2 * 3, 2×3, 6 ÷ 2, 2^10", "two times three, two times three, six divided by two, two to the power of ten"),
    ("1920x1080", "nineteen twenty by one thousand and eighty"),
    ("100k and 2.5M", "one hundred thousand and two point five million"),
    ("~5 or ≈5 or ±5", "about five or about five or plus or minus five"),
]
YEARS_DATES_TIMES = [
    ("in 1990", "in nineteen ninety"),
    ("in 2005", "in two thousand and five"),
    ("in 2024.", "in twenty twenty-four."),
    ("1990-1995", "nineteen ninety to nineteen ninety-five"),
    ("the 1990s and '80s", "the nineteen nineties and eighties"),
    ("2024-05-01", "May first, twenty twenty-four"),
    ("2024-99-99", "twenty twenty-four, ninety-nine, ninety-nine"),
    ("5/1/2024", "May first, twenty twenty-four"),
    ("31/12/24", "December thirty-first, twenty twenty-four"),
    ("May 5, 2024", "May fifth, twenty twenty-four"),
    ("on Jan. 5 we", "on January fifth we"),
    ("on Sept 21st.", "on September twenty-first."),
    ("5 May 2024", "the fifth of May, twenty twenty-four"),
    ("the 3rd of June", "the third of June"),
    ("May 2024", "May twenty twenty-four"),
    ("May I?", "May I?"),
    ("3:30", "three thirty"),
    ("3:30 pm", "three thirty P M"),
    ("3:05 p.m. we", "three oh five P M we"),
    ("at 3 p.m. We", "at three P M. We"),
    ("at 3 p.m.", "at three P M."),
    ("3pm", "three P M"),
    ("3:00", "three o'clock"),
    ("3:00 am", "three A M"),
    ("15:30", "fifteen thirty"),
    ("10:30:15", "ten thirty and fifteen seconds"),
]
MONEY_AND_MEASURES = [
    ("$3.50", "three dollars and fifty cents"),
    ("$1", "one dollar"),
    ("$0.99", "ninety-nine cents"),
    ("$1,234.56", "one thousand two hundred and thirty-four dollars and fifty-six cents"),
    ("$5.00.", "five dollars."),
    ("-$5", "minus five dollars"),
    ("$5-$10", "five dollars to ten dollars"),
    ("$5 million", "five million dollars"),
    ("$5k", "five thousand dollars"),
    ("$3 T-shirt", "three dollars T-shirt"),
    ("€20 or 5€", "twenty euros or five euros"),
    ("£1.01", "one pound and one penny"),
    ("¥500", "five hundred yen"),
    ("50%", "fifty percent"),
    ("3-5%", "three to five percent"),
    ("50%-60%", "fifty percent to sixty percent"),
    ("5km", "five kilometers"),
    ("1 kg", "one kilogram"),
    ("5-10 km.", "five to ten kilometers."),
    ("100ms", "one hundred milliseconds"),
    ("60 km/h", "sixty kilometers per hour"),
    ("5 m²", "five meters squared"),
    ("20°C", "twenty degrees celsius"),
    ("-5 ℃", "minus five degrees celsius"),
    ("72°F", "seventy-two degrees fahrenheit"),
    ("90°", "ninety degrees"),
]
CODES = [
    ("555-1234", "five five five, one two three four"),
    ("(555) 123-4567", "five five five, one two three, four five six seven"),
    ("+1 555 123 4567", "one, five five five, one two three, four five six seven"),
    ("v2.0.1", "version two point zero point one"),
    ("version 3.11.4", "version three point eleven point four"),
    ("10.0.0.1", "ten dot zero dot zero dot one"),
    ("COVID-19", "covid nineteen"),
    ("GPT-4", "G P T four"),
    ("MP3 H2O 4K B2B", "M P three H two O four K B two B"),
    ("python3.11", "python three point one one"),
    ("19-year-old", "nineteen year-old"),
    ("#1 #tag C#", "number one hashtag tag C sharp"),
]
LETTERS = [
    ("Dr. Smith", "doctor Smith"),
    ("Mr. and Mrs Jones", "mister and missus Jones"),
    ("in St. Louis", "in saint Louis"),
    ("Main St. is", "Main street is"),
    ("Gen. Lee, the next gen.", "general Lee, the next gen."),
    ("e.g. this, i.e. that", "for example this, that is that"),
    ("this vs. that", "this versus that"),
    ("eggs etc.", "eggs et cetera."),
    ("eggs etc. and", "eggs et cetera and"),
    ("eggs etc. Then", "eggs et cetera. Then"),
    ("No. 5. No. I won't.", "number five. No. I won't."),
    ("in Jan. we", "in January we"),
    ("Ph.D. or PhD", "P H D or P H D"),
    ("the U.S. army", "the U S army"),
    ("in the U.S.", "in the U S."),
    ("J. R. R. Tolkien", "J R R Tolkien"),
    ("So do I. We", "So do I. We"),
    ("GPU and CPU", "G P U and C P U"),
    ("HTML, USA, ATM, AI", "H T M L, U S A, A T M, A I"),
    ("GPUs", "G P U's"),
    ("NASA", "nasa"),
    ("STOP! DON'T", "stop! Don't"),
    ("IMPORTANT", "important"),
    ("OK", "okay"),
    ("R&D at AT&T", "R and D at A T and T"),
    ("World War II", "World War two"),
    ("iPhone, X-ray, T-shirt", "iPhone, X-ray, T-shirt"),
    ("TCP/IP", "T C P I P"),
]
MARKUP = [
    ("**bold** and *it* and ***both***", "bold and it and both"),
    ("`code` _x_ ~~no~~", "code x no"),
    ("# Title", "Title"),
    ("# Title\nText", "Title. Text"),
    ("- one\n- two", "one. two"),
    ("1. one\n2) two", "one. one. two. two"),
    ("One\n\nTwo", "One. Two"),
    ("one line\nand more", "one line and more"),
    ("> quoted", "quoted"),
    ("```python\nx = 1\n```", "x equals one."),
    ("a [link](https://example.com/x_y) here", "a link here"),
    ("![a cat](cat.png)", "a cat"),
    ("<b>bold</b><br/>x", "bold x"),
    ("<|endofprompt|>hi", "hi"),
    ("[laughter] hi", "laughter, hi"),
    ("snake_case", "snake case"),
    ("https://example.com", "example dot com"),
    ("see https://www.example.com/docs/a_b?x=1#y.", "see example dot com slash docs slash a b."),
    ("https://example.com/0f3a?/x%20y/very/long/path", "example dot com slash zero f three a"),
    ("(example.com)", "example dot com"),
    ("a.b@foo-bar.org", "a dot b at foo dash bar dot org"),
    ("node.js and main.py", "node dot js and main dot py"),
    ("the end.Then", "the end. Then"),
]
CHARACTERS = [
    ("", ""),
    (" \n\t ", ""),
    ("...", ""),
    ("?!.,;:-—", ""),
    ("***", ""),
    ("====", ""),
    ("😀 🎉 👨‍👩‍👧 ✔️", ""),
    ("Hi 😀!", "Hi!"),
    ("so\u200bft\u00adly", "softly"),
    ("a\x00b\x07", "ab"),
    ("a\ud800b", "ab"),
    ("ｆｕｌｌ　ｗｉｄｔｈ", "full width"),
    ("ﬁne", "fine"),
    ("cafe\u0301 naïve", "café naïve"),
    ("a\ue000b", "a b"),
    ("1st\u0301 x", "first x"),
    ("“Hello,” she said", "Hello, she said"),
    ("'quoted' it’s rock 'n' roll", "quoted it's rock n roll"),
    ("no (really) — yes - no", "no, really, yes, no"),
    ("Wait... what? Well...", "Wait, what? Well."),
    ("What?! No!!", "What? No!"),
    ("salt & pepper", "salt and pepper"),
    ("&", "and"),
    ("C++ -> x", "C plus plus x"),
    ("a < b ≠ c", "a less than b not equal to c"),
    ("Brand™ ©", "Brand"),
]
CASES = [*NUMBERS, *YEARS_DATES_TIMES, *MONEY_AND_MEASURES, *CODES, *LETTERS, *MARKUP, *CHARACTERS]

PIECES = [
    *" \n.,?!'-—…()*_`#$€%/+=&@|~^[]<>\"\\{",
    *["5", "0", "99", "A", "B", "I", "e", "é", "好", "。", "，", "、", "か", "²", "½", "°", "st", "th", "s", "k"],
    *[
        "Dr.",
        "St.",
        "No.",
        "a.m.",
        "p.m",
        "e.g.",
        "J.",
        "Gen.",
        "Ph.D",
        "etc.",
        "May",
        "Jan.",
        "3.14",
        "1,000",
        "12345678",
    ],
    *[
        "3:30",
        " pm",
        " km",
        "GPU",
        "US",
        "OK",
        "II",
        "www.",
        "x.com",
        "Then",
        "the",
        "DON'T",
        "X-",
        "-Y",
        "\n- ",
        "1. ",
    ],
    *["\u200b", "\ud800", "😀", "\u0301", "ﬁ", "İ", "ß", "ǅ", "کے", "한"],
]
written = (
    st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
    | st.text(alphabet=st.characters() | st.characters(max_codepoint=127), max_size=40)
    | st.text(alphabet=[chr(code) for code in range(0xD7F0, 0xE010)], max_size=9)
)
languages = st.sampled_from(["en", "zh", "de"])


@pytest.mark.parametrize(("text", "spoken"), CASES)
def test_readings(text: str, spoken: str) -> None:
    assert speakable(text) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("你好，世界。", "你好，世界。"),
        ("你好,世界!", "你好，世界！"),
        ("“你好”（再见）……好", "你好，再见，好"),
        ("我有3.5米、50%和20°C", "我有3.5米、百分之50和20摄氏度"),
        ("在3:30，有1,000个", "在3:30, 有1,000个"),
        ("用GPU & API。", "用GPU和API."),
        ("**好**\n- 一\n- 二", "好。一。二"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh", "zh-CN"])
def test_text_with_han_is_read_as_chinese(text: str, spoken: str, language: str) -> None:
    assert speakable(text, language) == spoken


def test_other_languages_keep_their_digits() -> None:
    assert speakable("Es kostet 3.14 **Euro** — gut", "de") == "Es kostet 3.14 Euro, gut"
    assert speakable("It costs 5", "en-GB") == "It costs five"


# --- properties -----------------------------------------------------------------------------------------------


@given(written, languages)
def test_what_was_said_is_said_again(text: str, language: str) -> None:
    spoken = speakable(text, language)
    assert speakable(spoken, language) == spoken


@given(written)
def test_only_words_and_marks_are_left(text: str) -> None:
    spoken = speakable(text)
    assert all(
        unicodedata.category(char)[0] in "LM" or char in " .,?!;:'-。，？！；：、" or has_han(spoken) for char in spoken
    )
    assert re.search(r"\s\s|\s[.,?!;:]|[.,?!;:]{2}|[_\n\t]", spoken) is None
    assert spoken == spoken
    assert spoken == "" or spoken[0].isalnum()


@given(written, languages)
def test_length_is_bounded(text: str, language: str) -> None:
    assert len(speakable(text, language)) <= 30 * len(text)


@pytest.mark.parametrize("unit", ["9", "1,", "1.", "$1", "a@", "<a", "[a](", "www.", "A.", "*", "\n", "- ", "é", "1/"])
def test_long_texts_are_read_in_linear_time(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    assert len(speakable(text)) <= 30 * len(text)
