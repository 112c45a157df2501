"""Streamed text -> what an LLM says, and its thoughts, `<think>...</think>`: an automaton. Pure and incremental.

Chat templates of Qwen3, DeepSeek-R1, Magistral and Kimi leave reasoning and calls of tools in the text like this.
A tag that is quoted (`` `<think>` ``) is text. What is not closed lasts to the end.
"""

import re
from collections.abc import Collection
from string import ascii_uppercase
from typing import Final

from voicegate.engine.text.fences import Piece
from voicegate.engine.text.patterns import any_of

# docs/protocol.md names them.
_NAMES: Final = tuple(
    f"{name}{plural}"
    for name in (
        *("think", "thinking", "thought", "reasoning", "reflection", "scratchpad"),
        *("tool_call", "tool_response", "tool_result", "function_call"),
    )
    for plural in ("", "s")
)
# Opening -> closing, in small letters.
_CLOSING: Final = {
    **{f"<{name}>": f"</{name}>" for name in _NAMES},
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
}
_OPENING: Final = re.compile(any_of(_CLOSING), re.IGNORECASE | re.ASCII)
_STARTS: Final = re.compile("[<[◁]")
_QUOTES: Final = frozenset("`\"'“‘")
_MAX_TAG_CHARS: Final = max(map(len, _CLOSING))
_SMALL: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}  # keeps lengths, which lower() may not


class ThoughtSplitter:
    def __init__(self) -> None:
        self._closing = ""  # of the open thought; "" outside
        self._held = ""
        self._last = ""  # character before what is held

    @property
    def held(self) -> str:
        """Taken, but in no piece yet: the start of a tag."""
        return self._held

    @property
    def is_open(self) -> bool:
        return bool(self._closing)

    def push(self, text: str) -> list[Piece]:
        """The decided pieces, in order; none is empty. A thought's have its tags."""
        if not self._held and not self._closing and _STARTS.search(text) is None:
            self._last = text[-1:] or self._last
            return [Piece(text, is_code=False)] if text else []
        text, self._held = self._held + text, ""
        pieces: list[Piece] = []
        while text:
            taken = self._within(text, pieces) if self._closing else self._outside(text, pieces)
            self._last = text[taken - 1 : taken] or self._last
            if not taken:
                self._held = text
                break
            text = text[taken:]
        return pieces

    def flush(self) -> list[Piece]:
        """The held text, as it stands."""
        held, self._held = self._held, ""
        self._last = held[-1:] or self._last
        return [Piece(held, is_code=self.is_open)] if held else []

    def _within(self, text: str, pieces: list[Piece]) -> int:
        """How much of `text` is decided, up to the end of the thought."""
        at = text.translate(_SMALL).find(self._closing)
        end = at + len(self._closing) if at >= 0 else _open_tag_start(text, (self._closing,))
        if end:
            pieces.append(Piece(text[:end], is_code=True))
        if at >= 0:
            self._closing = ""
        return end

    def _outside(self, text: str, pieces: list[Piece]) -> int:
        """Text up to the first thought, its opening tag included."""
        opening = next((each for each in _OPENING.finditer(text) if not self._is_quoted(text, each.start())), None)
        end = opening.start() if opening else _open_tag_start(text, _CLOSING)
        if end:
            pieces.append(Piece(text[:end], is_code=False))
        if opening is None:
            return end
        pieces.append(Piece(opening[0], is_code=True))
        self._closing = _CLOSING[opening[0].lower()]
        return opening.end()

    def _is_quoted(self, text: str, at: int) -> bool:
        return (text[at - 1] if at else self._last) in _QUOTES


def may_have_thought(text: str) -> bool:
    return _STARTS.search(text) is not None and _OPENING.search(text) is not None


def _open_tag_start(text: str, tags: Collection[str]) -> int:
    """Where one of the tags begins that does not end in `text`; its length if there is none."""
    tail = text[-_MAX_TAG_CHARS:].translate(_SMALL)
    starts = (start for start in range(len(tail)) if any(tag.startswith(tail[start:]) for tag in tags))
    return len(text) - len(tail) + next(starts, len(tail))
