"""Streamed text -> prose and fenced code (``` or ~~~): an automaton over lines. Pure and incremental.

Fences as in CommonMark 0.31, section 4.5, but indented by up to 12 blanks, as below a list item. Code without a closing
fence lasts to the end.
"""

import re
from typing import Final, NamedTuple

MAX_INDENT: Final = 12
MAX_INFO_CHARS: Final = 60

_OPENING: Final = re.compile(rf"[ \t]{{0,{MAX_INDENT}}}(?P<fence>`{{3,}}(?=[^`]*$)|~{{3,}})")
_MAY_OPEN: Final = re.compile(rf"[ \t]{{0,{MAX_INDENT}}}(?:`{{0,2}}|~{{0,2}}|`{{3,}}[^`\n]*|~{{3,}}[^\n]*)")
_CLOSING: Final = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})[ \t\r]*")
_MAX_HELD_CHARS: Final = MAX_INDENT + 2 * MAX_INFO_CHARS


class Piece(NamedTuple):
    text: str
    is_code: bool


class FenceSplitter:
    def __init__(self) -> None:
        self._fence = ""  # the open one; "" outside
        self._held = ""  # the start of the present line, while it may be a fence
        self._is_decided = False  # the present line: the rest of it is what its start was

    @property
    def held(self) -> str:
        """Taken, but in no piece yet: the start of a line that may be a fence."""
        return self._held

    @property
    def is_code(self) -> bool:
        """Whether a fence is open."""
        return bool(self._fence)

    def push(self, text: str) -> list[Piece]:
        """The decided pieces, in order; neighbours of a kind are joined."""
        if self._is_decided and text and "\n" not in text:  # nearly every word that comes
            return [Piece(text, self.is_code)]
        pieces: list[Piece] = []
        start = 0
        while start < len(text):
            end = text.find("\n", start) + 1 or len(text)
            self._take(text[start:end], pieces)
            start = end
        return joined(pieces)

    def flush(self) -> list[Piece]:
        """The held text, as it stands: three marks open a fence though their line is not over."""
        if not self._held:
            return []
        if not self._fence and (opening := _OPENING.match(self._held)):
            self._fence = opening["fence"]
            return [self._release(is_line_end=False)]
        closes = self._closes(self._held)
        piece = self._release(is_line_end=False)
        self._fence = "" if closes else self._fence
        return [piece]

    def _take(self, part: str, pieces: list[Piece]) -> None:
        """`part` is of one line, and ends it if it ends with a line feed."""
        is_line_end = part.endswith("\n")
        if self._is_decided:
            pieces.append(Piece(part, self.is_code))
            self._is_decided = not is_line_end
            return
        room = _MAX_HELD_CHARS - len(self._held)
        if len(part) > room:  # decided by what fits, whatever came along with it
            self._take(part[:room], pieces)
            self._take(part[room:], pieces)
            return
        self._held += part
        line = self._held.rstrip("\n")
        is_full = len(self._held) == _MAX_HELD_CHARS
        may_mark = not line.strip("`~ \t\r") if self._fence else _MAY_OPEN.fullmatch(line) is not None
        if may_mark and not is_line_end and not is_full:
            return
        closes = is_line_end and self._closes(line)
        if not self._fence and (opening := _OPENING.match(line)):
            self._fence = opening["fence"]
        pieces.append(self._release(is_line_end=is_line_end))
        self._fence = "" if closes else self._fence

    def _closes(self, line: str) -> bool:
        closing = _CLOSING.fullmatch(line)
        return self._fence != "" and closing is not None and closing["fence"].startswith(self._fence)

    def _release(self, *, is_line_end: bool) -> Piece:
        piece = Piece(self._held, self.is_code)
        self._held = ""
        self._is_decided = not is_line_end
        return piece


def joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of a kind are one; none is empty."""
    found: list[Piece] = []
    for piece in pieces:
        if found and found[-1].is_code is piece.is_code:
            found[-1] = Piece(found[-1].text + piece.text, piece.is_code)
        elif piece.text:
            found.append(piece)
    return found
