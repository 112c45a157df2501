"""Text as written -> text as said. Pure; one span at a time, so that it knows nothing of what came before.

The order: characters, addresses, markup, then the language's reader, which leaves only words and `.,?!;:'-`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from engine.text.characters import has_han
from engine.text.chinese import read_chinese
from engine.text.cleanup import clean_characters
from engine.text.english.reader import read_english
from engine.text.markup import strip_line_markup, strip_tags_and_links
from engine.text.punctuation import tidy
from engine.text.web import read_addresses

_READERS: Final[Mapping[str, Callable[[str], str]]] = {"en": read_english, "zh": read_chinese}


def speakable(text: str, language: str = "en") -> str:
    """What the LLM is to say of `text`; "" if nothing. Never raises; changes nothing in what it has returned.

    Text with Han characters is read as Chinese in any language. A language without a reader keeps its digits.
    """
    cleaned = read_addresses(strip_tags_and_links(clean_characters(text)))
    read = _READERS.get("zh" if has_han(cleaned) else language.lower().partition("-")[0], _read_other)
    return read(strip_line_markup(cleaned))


def _read_other(text: str) -> str:
    return tidy(text, keep_digit_marks=True)
