"""A code is read digit by digit where its name was said before, in another span."""

import pytest

from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.segmenter import TextSpan


@pytest.mark.parametrize(
    ("spans", "spoken"),
    [
        (["请记好您的验证码：", "482913。"], ["请记好您的验证码：", "四八二九一三。"]),
        (["您的取", "件码：482913，", "请取"], ["您的取", "件码：四八二九一三，", "请取"]),
        (["您的**验证码**：", "\n**482913**请勿泄露"], ["您的验证码：", "四八二九一三请勿泄露"]),
        (["您的验证码是", "“482913”"], ["您的验证码是", "四八二九一三"]),
        (["您的手机号：", "13812345678"], ["您的手机号：", "幺三八幺二三四五六七八"]),
        (["您的验证码：", "有500个"], ["您的验证码：", "有五百个"]),
        (["您的密码：", "99.5%"], ["您的密码：", "百分之九十九点五"]),
        (["价格如下：", "482913。"], ["价格如下：", "四十八万二千九百一十三。"]),
    ],
)
def test_what_was_said_before_decides(spans: list[str], spoken: list[str]) -> None:
    reader, words, start = SpanReader("zh"), [], 0
    for text in spans:
        span = TextSpan(text, start, start + len(text))
        words.append(reader.read(span))
        reader.note_said(span)
        start = span.char_end
    assert words == spoken
