"""How much of a text that is still being written a reading may have, and how much of that may be said. Pure.

A reading has every whole word, and the last one too though it may go on ("neigh"): it shapes what is said before it,
and is itself not said until more is known. Only what another character could read in another way (a number, an
abbreviation, markup) is kept back.
"""

import re
from typing import Final, NamedTuple

from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.word_cutter import finished_length
from voicegate.engine.text.word_rules import ENGLISH, WordRules

# Text without blanks has no last word to be seen: words of Chinese have two characters, most often.
_WIDE_WORD_CHARS: Final = 2
# Its end tells whether "I." is the first or whoever speaks, and "V." the fifth or an initial (markup.py).
_MAY_BE_HEADING: Final = re.compile(r"^[ \t]{0,40}[IVX][.)][ \t]+\S{1,30}(?:[ \t]+\S{1,30}){0,5}[ \t]*\Z", re.MULTILINE)


class Known(NamedTuple):
    """Lengths of two starts of the pending text."""

    read: int  # what a reading may have
    said: int  # what may be said while more text follows: all words of it but the last

    def at_least(self, length: int) -> "Known":
        return Known(max(self.read, length), max(self.said, length))


def known(pending: str, rules: WordRules = ENGLISH) -> Known:
    found = _known(pending, rules)
    heading = _MAY_BE_HEADING.search(pending) if ". " in pending or ") " in pending else None
    return found if heading is None else Known(found.read, min(found.said, heading.start()))


def _known(pending: str, rules: WordRules) -> Known:
    finished = finished_length(pending, wide_group_chars=1, rules=rules)
    if pending[finished:].strip().isalpha():
        num_wide = next((n for n, char in enumerate(reversed(pending)) if not is_wide(char)), len(pending))
        if num_wide:
            return Known(len(pending), len(pending) - min(num_wide, _WIDE_WORD_CHARS))
        # "well,n": read, the comma ends a word; as it is written, and told to captions, the word goes on.
        is_whole = not finished or pending[finished].isspace() or pending[finished - 1].isspace()
        return Known(len(pending), finished if is_whole else _without_last_word(pending[:finished]))
    return Known(finished, _without_last_word(pending[:finished]))


def _without_last_word(text: str) -> int:
    words = text.rsplit(maxsplit=1)
    return len(words[0]) if len(words) > 1 else 0
