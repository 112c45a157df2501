"""In all ten languages: a digit, a sign that means something and a currency are said, or go on to the model.

What is said of a text is compared with what is said of the text without the sign, or with another digit.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.normalize import speakable

# Frames before and after, in the words of the language.
FRAMES = {
    "en": ("Kate has", "today"),
    "zh": ("今天有", "左右"),
    "yue": ("今日有", "左右"),
    "de": ("Anna hat", "heute"),
    "es": ("Ana tiene", "hoy"),
    "fr": ("Anne voit", "ici"),
    "it": ("Anna vede", "oggi"),
    "ru": ("Анна видит", "сегодня"),
    "ja": ("これは", "です"),
    "ko": ("이것은", "입니다"),
    "pt": ("Ana tem", "hoje"),  # without a file: the model reads it
}
CURRENCIES = ["€", "$", "£", "¥", "₩", "₽", "₹", "₺", "₪"]
BEHIND = ["%", "‰", "°", "°C", "°F", *CURRENCIES, "²", "³", "km", "m²", "km/h", "kg"]
BEFORE = [*CURRENCIES, "+", "-", "±", "≈", "~", "<", ">", "≤", "≥", "√", "§", "#", "@", "&", "№"]
BETWEEN = ["+", "-", "=", "<", ">", "±", "×", "÷", "≈", "≤", "≥", "≠", "/", ":", "*", "&", "@", "x", "^"]
NUMBERS = ["{} 5", "{}", "1{}", "{}%", "{} €", "3,{}", "3.{}", "{}:30", "{}.", "{}-7", "{}/7", "A{}", "0{}1 23"]
# Those that a model without a file for the language is not told: they are markup as often.
LEFT_TO_MARKUP = frozenset("-~<>#@&:/*^x№")


SIGNS = [
    *(
        (sign, written, bare)
        for sign in BEHIND
        for written, bare in (("5{}", "5"), ("12,5 {}", "12,5"), ("5{},", "5,"))
    ),
    *((sign, written, bare) for sign in BEHIND for written, bare in (("5 {}", "5"), ("12,5{}", "12,5"))),
    *((sign, written, bare) for sign in BEFORE for written, bare in (("{}5", "5"), ("{} 5", "5"), ("{}12", "12"))),
    *((sign, written, "5 3") for sign in BETWEEN for written in ("5 {} 3", "5{}3")),
]


@pytest.mark.parametrize("language", FRAMES)
def test_no_sign_is_dropped(language: str) -> None:
    before, behind = FRAMES[language]

    def said(text: str) -> str:
        return speakable(f"{before} {text} {behind}", language)

    dropped = [
        written.format(sign)
        for sign, written, bare in SIGNS
        if not (language == "pt" and LEFT_TO_MARKUP & set(sign)) and said(written.format(sign)) == said(bare)
    ]
    assert dropped == []


@pytest.mark.parametrize("language", FRAMES)
def test_no_digit_is_dropped(language: str) -> None:
    before, behind = FRAMES[language]
    for frame in NUMBERS:
        said = [speakable(f"{before} {frame.format(digit)} {behind}", language) for digit in "0123456789"]
        assert len(set(said)) == 10, frame


@given(
    language=st.sampled_from(sorted(FRAMES)),
    number=st.from_regex(r"\A[1-9]\d{0,6}\Z"),
    sign=st.sampled_from(["%", *CURRENCIES]),
)
def test_no_percent_and_no_currency_of_any_number_is_dropped(language: str, number: str, sign: str) -> None:
    before, behind = FRAMES[language]
    bare = speakable(f"{before} {number} {behind}", language)
    for written in (f"{number}{sign}", f"{number} {sign}", *((f"{sign}{number}",) if sign != "%" else ())):
        assert speakable(f"{before} {written} {behind}", language) != bare
