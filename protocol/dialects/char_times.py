"""Characters and when they sound, as messages of audio tell them: each once, from where the last one ended. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from voicegate.protocol.messages import AlignmentItem

# Text between two words. Higher -> a message may be larger than the 1 MiB at which clients hang up.
_MAX_GAP_CHARS: Final = 4096
# Text that is kept together: the rest of it after a word is copied.
_PIECE_CHARS: Final = 1024


@dataclass(frozen=True, slots=True)
class CharTimes:
    """Lists of equal length."""

    chars: list[str]
    starts_ms: list[int]
    durations_ms: list[int]


@dataclass(frozen=True, slots=True)
class Told:
    """Times in one message, in both forms; None: nothing. They count from `zero_ms`, where the last one ended."""

    zero_ms: int
    written: CharTimes | None  # the text, one character for one, and blanks for all white space
    spoken: CharTimes | None  # its words, with one blank between two


@dataclass(frozen=True, slots=True)
class _Char:
    """Empty in one of the forms, where it is only in the other."""

    written: str
    spoken: str
    start_ms: int
    end_ms: int


@dataclass(slots=True)
class CharClock:
    """Times of one context. While words are known before they are heard, `told_ms` is where each message's audio
    begins."""

    told_ms: int = 0
    num_chars: int = 0  # of its text
    _text: deque[str] = field(default_factory=deque)  # in pieces, behind the last word that is known
    _num_read: int = 0
    _waiting: deque[_Char] = field(default_factory=deque)
    _end_ms: int | None = None  # of the last word; None: there is none yet, and may never be
    _ends_in_word: bool = False  # rather than in a blank

    def write(self, text: str) -> None:
        """Behind all text so far."""
        self.num_chars += len(text)
        self._text.extend(text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS))

    def learn(self, items: Iterable[AlignmentItem]) -> None:
        for item in items:
            self._pass_by(self._read(item.char_start), item.start_ms)
            self._read(item.char_end)
            duration_ms = item.end_ms - item.start_ms
            num_chars = max(1, len(item.text))
            times = [item.start_ms + duration_ms * index // num_chars for index in range(num_chars + 1)]
            self._waiting.extend(map(_Char, item.text, item.text, times, times[1:]))
            self._end_ms, self._ends_in_word = item.end_ms, True

    def reach(self, char: int) -> None:
        """All before it has been spoken."""
        if self._end_ms is not None:
            self._pass_by(self._read(char), self._end_ms)

    def end(self) -> None:
        """All has been spoken; a blank tells that the last word is whole."""
        self.reach(self.num_chars)
        if self._end_ms is not None and self._ends_in_word:
            self._waiting.append(_Char(" ", " ", self._end_ms, self._end_ms))
            self._ends_in_word = False

    def _pass_by(self, gap: str, at_ms: int) -> None:
        """Passes by text that is not said: it takes no time. Between spoken words it is the blank."""
        for char in gap[:_MAX_GAP_CHARS]:
            is_parting = self._ends_in_word and char.isspace()
            self._waiting.append(_Char(" " if char.isspace() else char, " " if is_parting else "", at_ms, at_ms))
            self._ends_in_word = self._ends_in_word and not is_parting
        if gap and self._ends_in_word:
            self._waiting.append(_Char("", " ", at_ms, at_ms))
            self._ends_in_word = False

    def _read(self, until_char: int) -> str:
        parts: list[str] = []
        while self._text and (num_chars := until_char - self._num_read) > 0:
            piece = self._text.popleft()
            parts.append(piece[:num_chars])
            self._num_read += len(parts[-1])
            if rest := piece[num_chars:]:
                self._text.appendleft(rest)
        return "".join(parts)

    def take(self, until_ms: int | None = None) -> Told | None:
        """Takes all that begins before then; None: all there is, or where there is nothing."""
        zero_ms = self.told_ms
        taken: list[_Char] = []
        while self._waiting and (until_ms is None or self._waiting[0].start_ms < until_ms):
            char = self._waiting.popleft()
            end_ms = char.end_ms if until_ms is None else min(char.end_ms, until_ms)
            taken.append(_Char(char.written, char.spoken, max(char.start_ms, zero_ms), end_ms))
        if not taken:
            return None
        self.told_ms = max(zero_ms, taken[-1].end_ms)
        written = _times([(char.written, char) for char in taken if char.written], zero_ms)
        return Told(zero_ms, written, _times([(char.spoken, char) for char in taken if char.spoken], zero_ms))


def _times(named: Sequence[tuple[str, _Char]], zero_ms: int) -> CharTimes | None:
    if not named:
        return None
    return CharTimes(
        chars=[name for name, _ in named],
        starts_ms=[char.start_ms - zero_ms for _, char in named],
        durations_ms=[max(0, char.end_ms - char.start_ms) for _, char in named],
    )
