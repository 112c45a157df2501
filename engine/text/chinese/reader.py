"""Chinese: cleaned text -> words and marks only; Latin words stay as they are. Pure."""

import re
from typing import Final

from voicegate.engine.text.chinese.digits import say_numbers
from voicegate.engine.text.chinese.quantities import write_quantities
from voicegate.engine.text.punctuation import tidy

# Blanks stay between Latin words only: upstream's frontend leaves out the others (replace_blank, frontend_utils.py).
_BLANK: Final = re.compile(r"(?<=[^\x00-\u2dff]) | (?=[^\x00-\u2dff])")
_ASCII_MARK: Final = re.compile(r"([,.?!;:]) ?(?=[^\x00-\u2dff]|$)")
# Node.js and main.py, but not "OK.Then" and "e.g.".
_NAME_WITH_STOP: Final = re.compile(r"(?<=[A-Za-z\d][A-Za-z\d])\.(?=[a-z]{1,4}\d?(?![A-Za-z\d.]))")
# As they stand apart from their numbers, and signs that only have a name.
_SIGNS: Final = (
    (re.compile(r"(?<=\d) (?=[‰^])|(?<=#) (?=\d)"), ""),
    (re.compile(r"(?<=\d) / (?=\d)"), "÷"),
    (re.compile(r"§ ?(\d+)"), r"第\1节"),
    (re.compile(r" ?@ ?(?=\w)"), "艾特"),
)
_ANY_SIGN: Final = re.compile("[‰^#/§@]")
_TO_WIDE: Final = str.maketrans(",.?!;:", "，。？！；：")


def read_chinese(text: str) -> str:
    """No ASCII digit is left."""
    if "." in text:
        text = _NAME_WITH_STOP.sub("点", text)
    if _ANY_SIGN.search(text) is not None:
        for pattern, words in _SIGNS:
            text = pattern.sub(words, text)
    text = tidy(say_numbers(write_quantities(text)))
    return _BLANK.sub("", _ASCII_MARK.sub(lambda match: match[1].translate(_TO_WIDE), text))
