"""Streamed text -> spans to speak. Pure and incremental; knows nothing of models or audio.

Both granularities decide about a character from it and what came before it, never from how the text was split into
pushes: any split gives the same spans.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from voicegate.engine.text.clause_cutter import ClauseCutter
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.unsaid import Piece, UnsaidSplitter
from voicegate.engine.text.word_cutter import WordCutter, finished_length
from voicegate.engine.text.word_rules import word_rules


class PhraseCutter:
    """The cuts of `words`, but for those inside what is, or may become, an entry of `pronunciation`."""

    def __init__(self, words: WordCutter, pronunciation: Pronunciation) -> None:
        self._words = words
        self._pronunciation = pronunciation
        self._length = 0  # of the words that are cut and held

    def next_cut(self, text: str) -> int | None:
        """Length of the first span of `text`, None while undecided. `text` only grows until it is cut."""
        while (cut := self._words.next_cut(text[self._length :])) is not None:
            self._length += cut
            if not self._pronunciation.may_go_on(text[: self._length]):
                length, self._length = self._length, 0
                return length
        return None

    def restart(self, text: str) -> None:
        """All of `text` leaves now, whatever was undecided about it."""
        self._length = 0
        self._words.restart(text)


# Lengths are in letters that the text is likely to be said with (spoken_length): of prose, as many as are written.

# Shortest first span that may end at a comma. Lower -> sound begins earlier, but the first phrase is said without
# knowing what follows, and may be over before the next is ready; higher -> the first sound waits for more text.
FIRST_MIN_LETTERS: Final = 24
# ... and its least number of words. Lower -> "However," alone becomes a pass; higher -> as above.
FIRST_MIN_WORDS: Final = 4
# A later span this long may end at a comma. Lower -> more seams inside sentences; higher -> later audio of long
# sentences, more memory a pass.
SOFT_MIN_LETTERS: Final = 80
# A later sentence shorter than this joins the next one ("Ok." "Yes."). Lower -> one-word passes, whose prosody is poor;
# higher -> a short sentence before a pause of the writer ("One sec.") is not said until more text or a flush comes.
# The first sentence is never held: its sound is waited for, while later text hides behind audio.
MIN_LETTERS: Final = 6
# No span is longer. Lower -> cuts where nobody would breathe; higher -> longer passes, which drift and hold memory.
MAX_LETTERS: Final = 240

# A push is scanned in pieces of this size. Lower -> more overhead; higher -> more copying a cut: quadratic in it.
_BLOCK_CHARS: Final = 4096


class Granularity(Enum):
    CLAUSE = "clause"  # a span is one LLM pass
    WORD = "word"  # a span is a word, or words that are read together, with the whitespace before it


@dataclass(frozen=True, slots=True)
class SegmenterConfig:
    granularity: Granularity = Granularity.CLAUSE
    first_min_letters: int = FIRST_MIN_LETTERS
    first_min_words: int = FIRST_MIN_WORDS
    soft_min_letters: int = SOFT_MIN_LETTERS
    min_letters: int = MIN_LETTERS
    max_letters: int = MAX_LETTERS
    language: str = "en"  # of what is written
    has_breaks: bool = True  # else their tags are text

    def __post_init__(self) -> None:
        if self.max_letters < 1:
            raise ValueError(f"max_letters is {self.max_letters}; a span needs at least 1")


@dataclass(frozen=True, slots=True)
class TextSpan:
    """`text` exactly as written; spans follow each other without gaps."""

    text: str
    char_start: int  # into all text pushed
    char_end: int
    is_code: bool = False  # of fenced code, a thought, or the tag of a break: not to be said
    pause_ms: int = 0  # that such a tag makes

    def split(self, length: int) -> "tuple[TextSpan, TextSpan]":
        """Splits text that is said, after so many characters."""
        middle = self.char_start + length
        return TextSpan(self.text[:length], self.char_start, middle), TextSpan(
            self.text[length:], middle, self.char_end
        )


class _Cutter(Protocol):
    def next_cut(self, text: str) -> int | None:
        """Length of the first span of `text`, None while undecided. `text` only grows until it is cut."""

    def restart(self, text: str) -> None:
        """All of `text` leaves now, whatever was undecided about it."""


class Segmenter:
    def __init__(self, config: SegmenterConfig | None = None, *, pronunciation: Pronunciation | None = None) -> None:
        config = config or SegmenterConfig()
        self._rules = word_rules(config.language)
        self._cutter: _Cutter
        if config.granularity is Granularity.WORD:
            words = WordCutter(max_letters=config.max_letters, rules=self._rules)
            self._cutter = PhraseCutter(words, pronunciation) if pronunciation else words
        else:
            self._cutter = ClauseCutter(
                first_min_letters=config.first_min_letters,
                first_min_words=config.first_min_words,
                soft_min_letters=config.soft_min_letters,
                min_letters=config.min_letters,
                max_letters=config.max_letters,
                rules=self._rules,
            )
        self._max_letters = config.max_letters
        self._unsaid = UnsaidSplitter(finds_breaks=config.has_breaks)
        self._pending = ""
        self._is_code = False  # `_pending` is
        self._offset = 0  # of `_pending` in all text pushed
        self._num_kept = 0  # of `_pending`, which go together

    @property
    def pending(self) -> str:
        """Pushed, but in no span yet: at most `max_letters`, and the start of a line or tag that may not be text."""
        return self._pending + self._unsaid.held

    @property
    def pending_text(self) -> str:
        """The part of `pending` that is known to be text."""
        return "" if self._is_code else self._pending

    @property
    def pending_start(self) -> int:
        """Start of `pending`, in all text pushed."""
        return self._offset

    @property
    def num_kept(self) -> int:
        """Kept characters of `pending_text`."""
        return self._num_kept

    def keep(self, num_chars: int) -> None:
        """So much of what is pending may have been said already: it stays in one span, whatever follows."""
        self._num_kept = num_chars
        if isinstance(self._cutter, ClauseCutter):
            self._cutter.keep(num_chars)

    def push(self, text: str) -> list[TextSpan]:
        """Take text of any size; return the spans that it decides."""
        blocks = (text[start : start + _BLOCK_CHARS] for start in range(0, len(text), _BLOCK_CHARS))
        return [span for block in blocks for piece in self._unsaid.push(block) for span in self._add(piece)]

    def flush(self) -> list[TextSpan]:
        """Everything pending, now: one span, or two where code begins in it. Later pushes go on from here."""
        return [span for piece in self._unsaid.flush() for span in self._add(piece)] + self._release_all()

    def flush_stalled(self) -> list[TextSpan]:
        """The pending text that can be said now, as one span, though more may follow: at most one.

        Up to the last blank, or the last mark, at which all before it is whole: a number, an abbreviation, an address,
        a link, a formula or a tag that may go on waits, and so does the last word until a blank or a mark ends it.
        Nothing of fenced code and thoughts, nor of what may be the start of one.
        """
        length = 0 if self._is_code else max(finished_length(self._pending, rules=self._rules), self._num_kept)
        return [self.take(length)] if length else []

    def take(self, length: int) -> TextSpan:
        """So much of `pending_text`, now, though nothing has decided about it."""
        if not self._is_code:
            self._cutter.restart(self._pending[:length])
        return self._release(length)

    def _add(self, piece: Piece) -> list[TextSpan]:
        """Pending text ends where code begins or ends."""
        spans: list[TextSpan] = []
        if piece.pause_ms or piece.is_code is not self._is_code:
            spans += self._release_all()
            self._is_code = piece.is_code
        self._pending += piece.text
        if piece.pause_ms:
            return [*spans, self._release(len(piece.text), pause_ms=piece.pause_ms)]
        return spans + self._decided()

    def _decided(self) -> list[TextSpan]:
        spans: list[TextSpan] = []
        while (length := self._code_length() if self._is_code else self._cutter.next_cut(self._pending)) is not None:
            spans.append(self._release(length))
        return spans

    def _code_length(self) -> int | None:
        return self._max_letters if len(self._pending) >= self._max_letters else None

    def _release_all(self) -> list[TextSpan]:
        return [self.take(len(self._pending))] if self._pending else []

    def _release(self, length: int, *, pause_ms: int = 0) -> TextSpan:
        span = TextSpan(self._pending[:length], self._offset, self._offset + length, self._is_code, pause_ms)
        self._pending = self._pending[length:]
        self._offset += length
        self._num_kept = 0
        return span
