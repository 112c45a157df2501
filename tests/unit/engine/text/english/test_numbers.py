"""Digits as words, one reader at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.english import numbers

digits = st.text("0123456789", min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("plain", "spoken"),
    [
        ("1099", "one thousand and ninety-nine"),
        ("1100", "eleven hundred"),
        ("1999", "nineteen ninety-nine"),
        ("2000", "two thousand"),
        ("2099", "twenty ninety-nine"),
        ("2100", "two thousand one hundred"),
        ("999999", "nine hundred and ninety-nine thousand nine hundred and ninety-nine"),
        ("1000001", "one zero zero zero zero zero one"),
        ("100000000000000", "one hundred trillion"),
        ("1000000000000000000", "one" + " zero" * 18),
    ],
)
def test_plain_numbers_are_counts_years_or_codes(plain: str, spoken: str) -> None:
    assert numbers.say_plain(plain) == spoken


@pytest.mark.parametrize(
    ("digits", "spoken"),
    [
        ("0", "zero"),
        ("21", "twenty-one"),
        ("110", "one hundred and ten"),
        ("1,001", "one thousand and one"),
        ("1,100", "one thousand one hundred"),
        ("1,000,099", "one million and ninety-nine"),
        ("1,000,100", "one million one hundred"),
        ("20,000,000,013", "twenty billion and thirteen"),
        ("301,000,045,600", "three hundred and one billion forty-five thousand six hundred"),
    ],
)
def test_counts(digits: str, spoken: str) -> None:
    assert numbers.say_integer(digits) == spoken


@pytest.mark.parametrize(
    ("digits", "spoken"),
    [
        ("0", "zeroth"),
        ("5", "fifth"),
        ("12", "twelfth"),
        ("13", "thirteenth"),
        ("20", "twentieth"),
        ("22", "twenty-second"),
        ("109", "one hundred and ninth"),
        ("1,000", "one thousandth"),
        ("1,000,001", "one million and first"),
    ],
)
def test_ordinals(digits: str, spoken: str) -> None:
    assert numbers.say_ordinal(digits) == spoken


@pytest.mark.parametrize(
    ("digits", "spoken"),
    [
        ("1066", "ten sixty-six"),
        ("1900", "nineteen hundred"),
        ("1905", "nineteen oh-five"),
        ("1000", "one thousand"),
        ("2009", "two thousand and nine"),
        ("2010", "twenty ten"),
        ("0033", "thirty-three"),
    ],
)
def test_years(digits: str, spoken: str) -> None:
    assert numbers.say_year(digits) == spoken


@pytest.mark.parametrize(
    ("top", "bottom", "spoken"),
    [
        ("1", "2", "one half"),
        ("3", "2", "three over two"),
        ("1", "20", "one twentieth"),
        ("1", "21", "one over twenty-one"),
        ("0", "5", "zero over five"),
        ("1", "0", "one over zero"),
        ("01", "2", "zero one over two"),
    ],
)
def test_fractions(top: str, bottom: str, spoken: str) -> None:
    assert numbers.say_fraction(top, bottom) == spoken


@pytest.mark.parametrize(
    ("decade", "spoken"), [("1980", "nineteen eighties"), ("90", "nineties"), ("2000", "two thousands")]
)
def test_decades(decade: str, spoken: str) -> None:
    assert numbers.say_decade(decade) == spoken


@given(digits)
def test_any_digits_become_words(text: str) -> None:
    for say in (numbers.say_digits, numbers.say_integer, numbers.say_number, numbers.say_plain, numbers.say_ordinal):
        spoken = say(text)
        assert spoken
        assert not any(char.isdigit() or char in ",." for char in spoken)
