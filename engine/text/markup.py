"""Markdown, HTML tags and model tags -> the words in them. Pure, language-independent.

Every pattern is bounded or stops at the next opening character, so that no input takes more than linear time.
"""

import re
from typing import Final

_MODEL_TAG: Final = re.compile(r"<\|[^<>|]{0,60}\|>")
_HTML_TAG: Final = re.compile(r"</?(?!https?:)[A-Za-z][^<>\n]{0,200}>")
_LINK: Final = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,2000}\)")
_LINE_MARKUP: Final = re.compile(r"[`*_#>~|\n+-]|\d[.)][ \t]")
_ITEM: Final = re.compile(r"[ \t]{0,40}(?:[-*+][ \t]|>+ ?|#{1,6}[ \t]|(?P<number>\d{1,3})[.)][ \t])")
_FENCE: Final = re.compile(r"[ \t]{0,40}(?:```|~~~)[\w+-]{0,20}[ \t]{0,40}")
_RULE: Final = re.compile(r"[-*_=|: \t]{3,}")
# Emphasis, not a product: "2 * 3" and "2*3" keep theirs.
_STAR: Final = re.compile(r"\*{2,}|(?<!\d)(?<!\d )\*|\*(?! ?\d)")


def strip_tags_and_links(text: str) -> str:
    """A link's text stays, its address does not."""
    if "<" in text:
        text = _HTML_TAG.sub(" ", _MODEL_TAG.sub(" ", text))
    return _LINK.sub(r"\1", text) if "](" in text else text


def strip_line_markup(text: str) -> str:
    """One line without emphasis, code marks, headings and bullets. Addresses must be read already: `_` is dropped."""
    if not _LINE_MARKUP.search(text):
        return text
    text = _joined_lines(text)
    return _STAR.sub("", text.replace("~~", "").replace("`", "").replace("_", " "))


def _joined_lines(text: str) -> str:
    """One line: a blank line, a heading and a list item end a sentence; other line ends are blanks."""
    parts: list[str] = []
    is_item = False
    for line in text.split("\n"):
        marker = _ITEM.match(line)
        is_blank = not line.strip() or _FENCE.fullmatch(line) is not None or _RULE.fullmatch(line) is not None
        if parts:
            parts.append(". " if is_item or is_blank or marker else " ")
        if is_blank:
            is_item = False
            continue
        is_item = marker is not None
        if marker is None:
            parts.append(line)
            continue
        number = marker["number"]
        parts.append((f"{number}. " if number else "") + line[marker.end() :])
    return "".join(parts)
