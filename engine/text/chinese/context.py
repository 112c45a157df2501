"""What a Chinese text is read as behind another: a code whose name was said already, a key behind "press". Pure.

A clause is cut at a colon, and a stall or a model that takes words one by one cuts anywhere: 您的验证码： | 482913。
"""

import re
from typing import Final

from voicegate.engine.text.chinese.digits import say_digits
from voicegate.engine.text.chinese.measures import CODE_WORDS

_MARKS: Final = r"[\s*_`\"'“‘「『(（]{0,6}"
# Digits of a telephone have a rule of their own, which needs no name.
_CODE: Final = re.compile(
    rf"(?:{CODE_WORDS}){_MARKS}[是为]?[：:]?{_MARKS}(?P<code>(?!1[3-9][0-9]{{9}}(?![0-9]))[0-9]{{3,}}+)(?![.][0-9]|[%A-Za-z-])"
)
# A telephone's, and no emphasis: 按*键.
_STAR_KEY: Final = re.compile(r"(?<=[按拨])(?P<quote>[\"'`]?)\*(?:号(?=键))?(?P=quote)(?=键(?!盘)|[，。,. ]|\Z)")
_FIRST_DIGIT: Final = re.compile(r"[0-9]")
# Before the first digit, of a text whose first number is the code.
_MAX_HEAD_CHARS: Final = 24


def read_star_keys(text: str) -> str:
    """Before emphasis is dropped."""
    return _STAR_KEY.sub("星号", text) if "*" in text else text


def in_context(before: str, text: str) -> str:
    """`text` so that it is read alone as it would be behind `before`."""
    digit = _FIRST_DIGIT.search(text, 0, _MAX_HEAD_CHARS)
    if digit is None:
        return text
    place = len(before) + digit.start()
    for match in _CODE.finditer(before + text):
        if match.start() < len(before) and match.start("code") == place:
            return text[: digit.start()] + say_digits(match["code"]) + text[match.end("code") - len(before) :]
    return text
