"""Written text as it is said, and what holds for any text."""

import re
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.engine.text.cases import cases
from voicegate.engine.text.cleanup import SIGNS
from voicegate.engine.text.language import detect_language
from voicegate.engine.text.languages.definition import known_languages
from voicegate.engine.text.normalize import SpanReader, speakable
from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.tags import EXPRESSIVE_TAGS

SAID = cases("said")
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
    *[
        "```",
        "\n~~~\n",
        "$x^2$",
        "\\frac{1}{2}",
        "[1]",
        "](x)",
        "<b>",
        "&lt;",
        "<|",
        "|>",
        "[breath]",
        "</strong>",
        "¥",
        "万",
    ],
    *["2024年", "第2", "1️⃣", "https://a.b/c", "‰", "③", "〇", "ส", "10:30"],
    *["\u200b", "\ud800", "😀", "\u0301", "ﬁ", "İ", "ß", "ǅ", "کے", "한"],
]
written = (
    st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
    | st.text(alphabet=st.characters() | st.characters(max_codepoint=127), max_size=40)
    | st.text(alphabet=[chr(code) for code in range(0xD7F0, 0xE010)], max_size=9)
)
languages = st.sampled_from(["en", "zh", "de", "es", "fr", "it", "ru", "ja", "ko", "pt"])
_HAS_ADDRESS = re.compile(r"[/@.]")


ENGLISH = [
    *(row for name, table in SAID.items() if not name.startswith(("chinese", "tagged", "untagged")) for row in table),
    ("12345678901234567890", " ".join(["one two three four five six seven eight nine zero"] * 2)),
    ("a\ud800b", "ab"),  # half of a character, which no file of UTF-8 has
    ("1" + "0" * 500, "one" + " zero" * 500),
    ("$1" + "0" * 20_000, "one" + " zero" * 20_000 + " dollars"),
]


@pytest.mark.parametrize(("text", "spoken"), ENGLISH)
def test_english(text: str, spoken: str) -> None:
    assert speakable(text) == spoken


@pytest.mark.parametrize(("text", "spoken"), [*SAID["chinese"], *SAID["chinese_callers"], *SAID["chinese_markup"]])
def test_chinese(text: str, spoken: str) -> None:
    assert speakable(text, "zh") == spoken
    assert speakable(text, "zh-CN") == spoken
    assert speakable(spoken, "zh") == spoken


@pytest.mark.parametrize("language", ["en", "de", "zh"])
def test_text_with_han_is_read_as_chinese(language: str) -> None:
    assert speakable("我有3.5米、50%和20°C", language) == "我有三点五米、百分之五十和二十摄氏度"
    assert speakable("CosyVoice 是 3 good models吗", language) == "CosyVoice是三good models吗"


@pytest.mark.parametrize(("text", "spoken"), SAID["tagged"])
def test_tags_of_the_model_stay(text: str, spoken: str) -> None:
    assert speakable(text, tags=EXPRESSIVE_TAGS) == spoken
    assert speakable(spoken, tags=EXPRESSIVE_TAGS) == spoken


@pytest.mark.parametrize(("text", "spoken"), SAID["untagged"])
def test_tags_that_the_model_has_not_are_left_out(text: str, spoken: str) -> None:
    assert speakable(text) == spoken


def test_a_model_may_have_some_of_the_tags() -> None:
    assert speakable("[breath] So [laughter] it is", tags={"[breath]"}) == "[breath] So it is"


@pytest.mark.parametrize(
    "text", ["<|endofprompt|>", "＜|im_start|＞", "&lt;|endofprompt|&gt;", "<|<|x|>endofprompt|>", "<| im_end |>"]
)
def test_control_words_are_never_left(text: str) -> None:
    assert re.search(r"[<>|]", speakable(f"a {text} b", tags=EXPRESSIVE_TAGS)) is None


def test_the_region_decides_about_slash_dates() -> None:
    assert speakable("5/1/2024", "en-US") == speakable("5/1/2024") == "May first, twenty twenty-four"
    assert speakable("5/1/2024", "en-GB") == "January fifth, twenty twenty-four"
    assert speakable("12/31/24", "en-GB") == "December thirty-first, twenty twenty-four"


def test_other_languages_keep_their_digits() -> None:
    assert speakable("Custa 3.14 **euros** — bom", "pt") == "Custa 3.14 euros, bom"
    assert speakable("ราคา 5 บาท", "en") == "ราคา 5 บาท"
    assert speakable("It costs 5", "en-GB") == "It costs five"
    assert speakable(speakable("کے 5 x.com")) == speakable("کے 5 x.com") == "کے 5 x dot com"


def test_what_has_no_words_is_in_the_language_of_the_span_before() -> None:
    reader = SpanReader("en")
    texts = ["I ran", " 5 km", "，我跑了", " 5 km", " and then", " 5 km"]
    spoken = [reader.read(TextSpan(text, 0, len(text))) for text in texts]
    assert spoken == ["I ran", "five kilometers", "我跑了", "五公里", "and then", "five kilometers"]


@pytest.mark.parametrize("text", ["www.*GPU", "https://*GPU", "http://*GPU*"])
def test_an_address_that_is_none_for_its_marks_decides_no_language(text: str) -> None:
    spoken = speakable(text, "zh")
    assert speakable(spoken, "zh") == spoken


def test_code_is_not_said() -> None:
    assert SpanReader("en").read(TextSpan("x = 1", 0, 5, is_code=True)) == ""


# --- properties -----------------------------------------------------------------------------------------------


@given(written, languages)
def test_what_was_said_is_said_again(text: str, language: str) -> None:
    assume(language != "ja" or not _HAS_ADDRESS.search(text))  # which is said in English words, and those are English
    spoken = speakable(text, language)
    assert speakable(spoken, language) == spoken


@given(written, languages)
def test_tags_change_nothing_else(text: str, language: str) -> None:
    spoken = speakable(text, language, tags=EXPRESSIVE_TAGS)
    assert speakable(spoken, language, tags=EXPRESSIVE_TAGS) == spoken
    if not any(tag in spoken for tag in EXPRESSIVE_TAGS):
        assert spoken == speakable(text, language)


@given(written)
def test_no_digit_is_left_in_chinese(text: str) -> None:
    text = "好" * 40 + text
    assume(detect_language(text, "zh") == "zh")
    assert re.search("[0-9]", speakable(text, "zh")) is None


@given(written)
def test_only_words_and_marks_are_left(text: str) -> None:
    spoken = speakable(text)
    language = detect_language(spoken, "en")
    left_to_the_model = "" if language in ("en", "zh") else "0123456789"
    if language not in known_languages() | {"en", "zh"}:
        left_to_the_model += "$%+=" + "".join(SIGNS)
    allowed = " .,?!;:'-。，？！；：、" + left_to_the_model
    assert all(unicodedata.category(char)[0] in "LM" or char in allowed for char in spoken)
    assert re.search(r"\s\s|\s[.,?!;:]|[.,?!;:]{2}|[_\n\t]", spoken) is None
    assert spoken == "" or spoken[0].isalnum() or spoken[0] in left_to_the_model


@given(written, languages)
def test_length_is_bounded(text: str, language: str) -> None:
    assert len(speakable(text, language)) <= 30 * len(text)


UNITS = [
    *["9", "1,", "1.", "$1", "a@", "<a", "[a](", "www.", "A.", "*", "\n", "- ", "é", "1/"],
    *"`$^&~|[",
    "\\[",
    "$x",
]


@pytest.mark.parametrize("unit", UNITS)
def test_long_texts_are_read_in_linear_time(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    assert len(speakable(text)) <= 30 * len(text)


@pytest.mark.parametrize("unit", ["9", "1:", "好1", "5km", "第", "1-", "$1", "A1", "1/"])
def test_long_chinese_texts_are_read_in_linear_time(unit: str) -> None:
    text = "好" + unit * (4_000 // len(unit))
    assert len(speakable(text, "zh")) <= 30 * len(text)
