"""Digits as Chinese words, by what stands at them. Counts as wetext 0.1.8 has them; the rest where that errs, too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.text.cases import cases
from voicegate.engine.text.chinese.digits import say_count, say_numbers

CASES = cases("chinese_digits")


@pytest.mark.parametrize(
    ("number", "spoken"),
    CASES["counts"],
)
def test_counts(number: str, spoken: str) -> None:
    assert say_count(number) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    CASES["what_stands_at_a_number_decides"],
)
def test_what_stands_at_a_number_decides(text: str, spoken: str) -> None:
    assert say_numbers(text) == spoken


@given(st.text(alphabet="0123456789./:%-年个第后两百", max_size=40))
def test_no_digit_is_left(text: str) -> None:
    assert not any(char in "0123456789" for char in say_numbers(text))
