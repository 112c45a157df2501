"""Streamed text -> what is for ears, and what is not: fenced code, an LLM's thoughts. Pure and incremental."""

from voicegate.engine.text.fences import FenceSplitter, Piece, joined
from voicegate.engine.text.thoughts import ThoughtSplitter, may_have_thought


class UnsaidSplitter:
    """A fence within a thought is none, nor is a thought within a fence."""

    def __init__(self) -> None:
        self._fences = FenceSplitter()
        self._thoughts = ThoughtSplitter()
        self._is_code_line = False  # the present line began within a fence
        self._is_line_start = True

    @property
    def held(self) -> str:
        """Taken, but in no piece yet: the start of a line or of a tag."""
        return self._fences.held + self._thoughts.held

    def push(self, text: str) -> list[Piece]:
        """The decided pieces, in order; none is empty. `is_code`: not for ears."""
        pieces: list[Piece] = []
        start = 0
        while start < len(text):
            end = text.find("\n", start) + 1 or len(text)
            self._take(text[start:end], pieces)
            start = end
        return pieces

    def flush(self) -> list[Piece]:
        """The held text, as it stands."""
        pieces = [] if self._thoughts.is_open else self._fences.flush()
        for piece in self._thoughts.flush():
            pieces += [piece] if piece.is_code else [*self._fences.push(piece.text), *self._fences.flush()]
        return pieces

    def _take(self, part: str, pieces: list[Piece]) -> None:
        """`part` is of one line, and ends it if it ends with a line feed. Fences open and close where lines end."""
        if self._is_line_start:
            self._is_code_line = self._fences.is_code and not self._thoughts.is_open
        self._is_line_start = part.endswith("\n")
        if self._is_code_line:
            pieces += self._fences.push(part)
            return
        for piece in self._thoughts.push(part):
            pieces += [*self._fences.flush(), piece] if piece.is_code else self._fences.push(piece.text)


def without_unsaid(text: str) -> str:
    """`text` without it; what stood before and behind it is in different paragraphs."""
    if "```" not in text and "~~~" not in text and not may_have_thought(text):
        return text
    splitter = UnsaidSplitter()
    pieces = joined([*splitter.push(text), *splitter.flush()])
    return "\n\n".join(piece.text for piece in pieces if not piece.is_code)
