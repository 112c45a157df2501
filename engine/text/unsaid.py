"""Streamed text -> what is for ears, and what is not: fenced code, an LLM's thoughts, breaks. Pure and incremental.

Fences (``` or ~~~) are those of CommonMark 0.31, section 4.5, but indented by up to 12 blanks, as below a list item.
Chat templates of Qwen3, DeepSeek-R1, Magistral and Kimi leave reasoning and calls of tools in the text, as
`<think>...</think>`. A tag that is quoted (`` `<think>` ``) is text. A fence within a thought is none, nor is a thought
within a fence. Code or a thought that is not closed lasts to the end.
"""

import re
from itertools import groupby
from string import ascii_uppercase
from typing import Final, NamedTuple

from voicegate.engine.text.breaks import break_at, may_become_break
from voicegate.engine.text.patterns import any_of

MAX_INDENT: Final = 12
MAX_INFO_CHARS: Final = 60
_OPENING_FENCE: Final = re.compile(rf"[ \t]{{0,{MAX_INDENT}}}(?P<fence>`{{3,}}(?=[^`]*$)|~{{3,}})")
_MAY_OPEN: Final = re.compile(rf"[ \t]{{0,{MAX_INDENT}}}(?:`{{0,2}}|~{{0,2}}|`{{3,}}[^`\n]*|~{{3,}}[^\n]*)")
_CLOSING_FENCE: Final = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})[ \t\r]*")
_MAY_CLOSE: Final = re.compile(r"[`~ \t\r]*")
# Characters of a line by which it is decided whether it is a fence.
_MAX_HELD_CHARS: Final = MAX_INDENT + 2 * MAX_INFO_CHARS

# docs/protocol.md names them.
_THOUGHTS: Final = tuple(
    f"{name}{plural}"
    for name in (
        *("think", "thinking", "thought", "reasoning", "reflection", "scratchpad"),
        *("tool_call", "tool_response", "tool_result", "function_call"),
    )
    for plural in ("", "s")
)
# Opening -> closing, in small letters.
_CLOSING: Final = {
    **{f"<{name}>": f"</{name}>" for name in _THOUGHTS},
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
}
_OPENING: Final = re.compile(any_of(_CLOSING), re.IGNORECASE | re.ASCII)
_MAX_TAG_CHARS: Final = max(map(len, _CLOSING))
_STARTS: Final = re.compile("[<[◁]")  # of thoughts and breaks
_QUOTES: Final = frozenset("`\"'“‘")
_SMALL: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}  # keeps lengths, which lower() may not


class Piece(NamedTuple):
    text: str
    is_code: bool = False  # not for ears: code, a thought, the tag of a break
    pause_ms: int = 0  # that such a tag makes


class UnsaidSplitter:
    """An automaton: within a thought, within fenced code, or outside."""

    def __init__(self, *, finds_breaks: bool = True) -> None:
        """`finds_breaks` False: their tags are text."""
        self._finds_breaks = finds_breaks
        self._thought = ""  # the tag that closes the open one; "" outside
        self._fence = ""  # the open one; "" outside
        self._is_line_open = False  # something of the present line has left: it is no fence
        self._last = ""  # character that left last
        self.held = ""  # taken, but in no piece yet: the start of a line or of a tag

    def push(self, text: str) -> list[Piece]:
        """The decided pieces, in order; none is empty."""
        is_outside = self._is_line_open and not (self.held or self._thought or self._fence)
        if is_outside and text and "\n" not in text and _STARTS.search(text) is None:  # nearly every word that comes
            self._last = text[-1]
            return [Piece(text)]
        text, self.held = self.held + text, ""
        pieces: list[Piece] = []
        while text:
            step = self._in_thought if self._thought else self._in_fence if self._fence else self._outside
            if not (found := step(text)):
                self.held = text
                break
            pieces += found
            taken = sum(len(piece.text) for piece in found)
            self._last, text = text[taken - 1], text[taken:]
        return pieces

    def flush(self) -> list[Piece]:
        """The held text, as it stands: three marks open a fence though their line is not over."""
        if not (held := self.held):
            return []
        self.held, self._last = "", held[-1]
        if self._thought:
            return [Piece(held, is_code=True)]
        is_code, starts_line = bool(self._fence), not self._is_line_open
        self._is_line_open = not held.endswith("\n")
        if is_code and starts_line and self._closes_fence(held):
            self._fence = ""
        elif not is_code and starts_line and (opening := _OPENING_FENCE.match(held)):
            self._fence, is_code = opening["fence"], True
        return [Piece(held, is_code)]

    # --- the beginning of `text`, as far as it is decided ------------------------------------------------------

    def _in_thought(self, text: str) -> list[Piece]:
        at = text.translate(_SMALL).find(self._thought)
        end = at + len(self._thought) if at >= 0 else _start_of_open(self._thought, text)
        if at >= 0:
            self._thought = ""
        return [Piece(text[:end], is_code=True)] if end else []

    def _in_fence(self, text: str) -> list[Piece]:
        """One line, which may be the closing fence."""
        line = text[: text.find("\n") + 1] or text
        is_whole = line.endswith("\n")
        if not self._is_line_open:
            if not is_whole and len(line) < _MAX_HELD_CHARS and _MAY_CLOSE.fullmatch(line):
                return []
            if is_whole and len(line) <= _MAX_HELD_CHARS and self._closes_fence(line.rstrip("\n")):
                self._fence = ""
        self._is_line_open = not is_whole
        return [Piece(line, is_code=True)]

    def _closes_fence(self, line: str) -> bool:
        closing = _CLOSING_FENCE.fullmatch(line)
        return closing is not None and closing["fence"].startswith(self._fence)

    def _outside(self, text: str) -> list[Piece]:
        """One line, which may be an opening fence, or its text up to a thought or a break and that."""
        line = text[: text.find("\n") + 1] or text
        if not self._is_line_open:
            head = line[:_MAX_HELD_CHARS].rstrip("\n")
            if line == head and len(head) < _MAX_HELD_CHARS and _MAY_OPEN.fullmatch(head):
                return []
            if opening := _OPENING_FENCE.match(head):
                self._fence = opening["fence"]
                self._is_line_open = not line.endswith("\n")
                return [Piece(line, is_code=True)]
        for start in _STARTS.finditer(line):
            at = start.start()
            if tag := self._tag_at(text, at):
                self._is_line_open = self._is_line_open or at > 0 or tag.pause_ms > 0
                return [*_text(text[:at]), tag]
            if _may_become_thought(text, at) or (self._finds_breaks and may_become_break(text, at)):
                self._is_line_open = self._is_line_open or at > 0
                return _text(text[:at])
        self._is_line_open = not line.endswith("\n")
        return _text(line)

    def _tag_at(self, text: str, at: int) -> Piece | None:
        """A break, or the opening tag of a thought, which begins there."""
        thought = _OPENING.match(text, at)
        if thought is not None and (text[at - 1] if at else self._last) not in _QUOTES:
            self._thought = _CLOSING[thought[0].lower()]
            return Piece(thought[0], is_code=True)
        found = break_at(text, at) if self._finds_breaks else None
        return None if found is None else Piece(found[0], is_code=True, pause_ms=found[1])


def _text(text: str) -> list[Piece]:
    return [Piece(text)] if text else []


def _may_become_thought(text: str, at: int) -> bool:
    rest = text[at : at + _MAX_TAG_CHARS].translate(_SMALL)
    return any(tag.startswith(rest) for tag in _CLOSING)


def _start_of_open(tag: str, text: str) -> int:
    """Where `tag` begins that does not end in `text`; its length if there is none."""
    starts = range(max(len(text) - len(tag) + 1, 0), len(text))
    return next((start for start in starts if tag.startswith(text[start:].translate(_SMALL))), len(text))


def without_unsaid(text: str) -> str:
    """`text` without code and thoughts; what stood before and behind them is in different paragraphs."""
    if "```" not in text and "~~~" not in text and _OPENING.search(text) is None:
        return text
    splitter = UnsaidSplitter(finds_breaks=False)
    runs = groupby([*splitter.push(text), *splitter.flush()], key=lambda piece: piece.is_code)
    return "\n\n".join("".join(piece.text for piece in run) for is_code, run in runs if not is_code)
