"""Words that are read one by one (bistream), with the pauses that lines, brackets and dashes between them are. Pure.

Read together, these become marks (markup.py, punctuation.py); a word alone has nothing before it.
"""

import re
from typing import Final

from voicegate.engine.text.characters import is_wide

_LINE: Final = re.compile(r"\s*\n(?:[ \t]*\n|[ \t]*(?:[-*•+]|\d{1,3}[.)]|#{1,6})(?:\s|\Z))")
_OPENING: Final = ("(", "（", "—", "–", "―")
_CLOSING: Final = (")", "）", "—", "―")
_DASHES: Final = frozenset({"-", "–", "—"})
_WIDE: Final = {".": "。", ",": "，", "": ""}


class PhraseBreaks:
    """Phrase breaks of one utterance."""

    def __init__(self) -> None:
        self._mark = ""  # before the next words
        self.said = "", ""  # the last words, and the text from there on

    def begin(self, text: str, words: str) -> str:
        """The first of a pass."""
        self._note(text, words)
        return words

    def go_on(self, text: str, words: str) -> str:
        """`words`, which are said of `text`, as they stand behind those before them.

        Byte-level BPE keeps the blank with the word that follows it.
        """
        if _LINE.match(text) is not None:
            self._mark = "."
        elif text.lstrip().startswith(_OPENING) or text.strip() in _DASHES:
            self._mark = self._mark or ","
        if not words:
            self.said = self.said[0], self.said[1] + text
            return words
        mark = self._mark if self.said[0][-1:].isalnum() and words[0].isalnum() else ""
        self._note(text, words)
        if is_wide(words[0]):
            return _WIDE[mark] + words
        return f"{mark} {words}" if words[0].isalnum() else words

    def _note(self, text: str, words: str) -> None:
        self.said = words, text
        self._mark = "," if text.rstrip().endswith(_CLOSING) else ""
