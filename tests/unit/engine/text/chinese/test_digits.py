"""Digits as Chinese words, by what stands at them. Counts as wetext 0.1.8 has them; the rest where that errs, too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.chinese.digits import say_count, say_numbers


@pytest.mark.parametrize(
    ("number", "spoken"),
    [
        ("0", "零"),
        ("2", "二"),
        ("10", "十"),
        ("14", "十四"),
        ("20", "二十"),
        ("110", "一百一十"),
        ("101", "一百零一"),
        ("200", "两百"),
        ("1010", "一千零一十"),
        ("1200", "一千二百"),
        ("2002", "两千零二"),
        ("2222", "两千二百二十二"),
        ("10010", "一万零一十"),
        ("20000", "两万"),
        ("100001", "十万零一"),
        ("120000", "十二万"),
        ("222222222", "两亿二千二百二十二万二千二百二十二"),
        ("53309367", "五千三百三十万九千三百六十七"),
        ("100002345", "一亿零二千三百四十五"),
        ("100100000", "一亿零一十万"),
        ("123456789012", "一千二百三十四亿五千六百七十八万九千零一十二"),
        ("1234567890123", "一二三四五六七八九零一二三"),
        ("007", "零零七"),
        ("0.05", "零点零五"),
        ("10.50", "十点五零"),
        ("-3.5", "负三点五"),
    ],
)
def test_counts(number: str, spoken: str) -> None:
    assert say_count(number) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("2个", "两个"),
        ("2年", "两年"),
        ("2年级", "二年级"),
        ("2次", "两次"),
        ("2次方", "二次方"),
        ("2月2日", "二月二日"),
        ("22个", "二十二个"),
        ("第2个", "第二个"),
        ("1万2千", "一万二千"),
        ("1/12个月", "十二分之一个月"),
        ("2/3平方米", "三分之二平方米"),
        ("2.5%", "百分之二点五"),
        ("6:2", "六比二"),
        ("5:2度", "五比二度"),
        ("16:20开会", "十六点二十分开会"),
        ("2:05:09", "两点零五分零九秒"),
        ("25:30", "二十五比三十"),
        ("2024年", "二零二四年"),
        ("110年", "一百一十年"),
        ("打110", "打幺幺零"),
        ("110米", "一百一十米"),
        ("80后", "八零后"),
    ],
)
def test_what_stands_at_a_number_decides(text: str, spoken: str) -> None:
    assert say_numbers(text) == spoken


@given(st.text(alphabet="0123456789./:%-年个第后两百", max_size=40))
def test_no_digit_is_left(text: str) -> None:
    assert not any(char in "0123456789" for char in say_numbers(text))
