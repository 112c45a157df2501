"""Where markup begins that the text has not closed yet: nothing is cut there that can wait. Pure."""

import re
from typing import Final

# A sign that is open for longer was none: "a < b", a lone backtick. Lower -> long links are torn at a stall; higher ->
# after such a sign more is held back.
MAX_OPEN_CHARS: Final = 160

_OPENING: Final = re.compile(r"[`\[]|<[A-Za-z/|!]|\$\$|\$(?=\\|[a-z](?![A-Za-z]))|\\[(\[]")
_WHOLE: Final = re.compile(
    r"`{1,3}[^`\n]*`{1,3}|\[[^\[\]\n]*\](?:\([^()\n]*\)|(?=[^(]))|<[^<>\n]*>|\$\$[^$]*\$\$|\$[^$\n]+\$|\\\([^\\\n]*\\\)|\\\[[^\\]*\\\]"
)
_TAG_START: Final = re.compile(
    r"<(?:a|img|div|span|p|font|table|t[dhr]|video|audio|iframe|details|break|speak|voice|prosody|say-as|phoneme|emotion|speed|volume|emphasis)"
    rf"[ \t][^<>\n]{{0,{MAX_OPEN_CHARS}}}\Z",
    re.IGNORECASE,
)
# A tag of several words may begin like this: [laughs softly].
_WORDS_IN_BRACKETS: Final = re.compile(r"(?<!\S)\[[A-Za-z]{2,16}(?:[ ][a-z]{2,12})?\s\Z")


def open_markup_start(text: str) -> int:
    """Where code, a link, a tag or a formula begins that does not end in `text`; its length if there is none."""
    start = 0
    while opening := _OPENING.search(text, start):
        if whole := _WHOLE.match(text, opening.start()):
            start = whole.end()
        elif len(text) - opening.start() <= MAX_OPEN_CHARS:
            return opening.start()
        else:
            start = opening.end()
    return len(text)


def markup_ranges(text: str) -> list[tuple[int, int]]:
    """Where code, links, tags and formulas begin and end that are whole in `text`."""
    ranges: list[tuple[int, int]] = []
    start = 0
    while opening := _OPENING.search(text, start):
        whole = _WHOLE.match(text, opening.start())
        start = whole.end() if whole else opening.end()
        if whole:
            ranges.append(whole.span())
    return ranges


def is_in_tag(text: str) -> bool:
    """Whether `text` ends between the attributes of an HTML or SSML tag, or between words in brackets."""
    if "[" in text and _WORDS_IN_BRACKETS.search(text) is not None:
        return True
    return "<" in text and _TAG_START.search(text) is not None
