"""Where a clause ends: an automaton over characters. Pure; `Segmenter` owns the text, this owns the decision."""

import re
from enum import Enum
from typing import Final, NamedTuple

from voicegate.engine.text.characters import (
    LONG_DASHES,
    RUN_END,
    WIDE_CLAUSE_MARKS,
    WIDE_LIST_MARK,
    WIDE_SENTENCE_ENDS,
    WIDE_TRAILERS,
    ends_phrase,
    has_word,
    inner_cut,
    is_wide,
)
from voicegate.engine.text.cleanup import PICTURES
from voicegate.engine.text.spoken_length import written_letters
from voicegate.engine.text.word_endings import Ending, word_ending
from voicegate.engine.text.word_rules import ENGLISH, WordRules

# Letters a word in text that has blanks only between phrases (Thai).
_PHRASE_WORD_CHARS: Final = 5

_LINE_MARKER: Final = re.compile(
    rf"[-*+•‣▪>|]|[{PICTURES}]\ufe0f?|#{{1,6}}|[(\[]?(?:\d{{1,3}}|[A-Za-z]|[IVX]{{2,5}})[.)\]]"
)
_ENDS_NUMBER: Final = re.compile("[0-9%年月日号点时分度元℃℉]")
_BEGINS_NUMBER: Final = re.compile("[0-9$€£¥￥]")
# Words in small letters, each with the blank behind it: no mark and no line ends in them.
_PLAIN_WORDS: Final = re.compile(r"(?:[a-z]+ )+")


class _Line(Enum):
    """The present line so far."""

    BLANK = "blank"
    TEXT = "text"
    ITEM = "item"  # opened by a marker: a list item, a heading, a quotation


class _After(Enum):
    """Marks behind which one more character must be seen."""

    WIDE_END = "wide sentence end"  # a closing quote may still belong to it
    DASH = "dash"  # it may be a double one
    RANGE_DASH = "dash behind a number"  # and this one of a range: 9:00—21:00, 6月1日—6月18日


class _Cut(NamedTuple):
    at: int
    num_letters: int  # before it
    line: _Line  # the state to go on with from there


class ClauseCutter:
    def __init__(
        self,
        *,
        first_min_letters: int,
        first_min_words: int,
        soft_min_letters: int,
        min_letters: int,
        max_letters: int,
        rules: WordRules = ENGLISH,
    ) -> None:
        self._rules = rules
        self._first_min_letters = first_min_letters
        self._first_min_words = first_min_words
        self._soft_min_letters = soft_min_letters
        self._min_letters = min_letters
        self._max_letters = max_letters
        self._is_first = True
        self._begin_span(_Line.BLANK)

    def next_cut(self, text: str) -> int | None:
        """Length of the first span of `text`, None while undecided. `text` only grows until it is cut."""
        while (is_full := self._num_letters >= self._max_letters) or self._pos < len(text):
            cut = self._forced_cut(text) if is_full else self._step(text)
            if cut is not None:
                assert cut.at > 0, "a cut that takes nothing would be found again for ever"
                self._leave(text[: cut.at], cut.line)
                return cut.at
            if is_full:
                return None
        return None

    def keep(self, length: int) -> None:
        """So much of the text is in one span with what follows: it may have been said already."""
        self._kept = length

    def restart(self, text: str) -> None:
        """All of `text` leaves now, whatever was undecided about it."""
        self._leave(text, self._line)

    def _leave(self, span: str, line: _Line) -> None:
        self._is_first = self._is_first and not has_word(span)
        self._begin_span(line)

    def _begin_span(self, line: _Line) -> None:
        self._line = line
        self._line_start = _Cut(0, 0, _Line.BLANK)
        self._pos = 0  # the next character to look at
        self._num_letters = 0  # that those before it are said with
        self._lead = 0  # whitespace at their start, a letter each
        self._num_words = 0
        self._word_start: int | None = None
        self._word_opens_line = False
        self._wait: Ending | _After | None = None
        self._letters_end: tuple[_Cut, Ending] | None = None  # behind "U.S. "
        self._kept = 0
        self._mark: _Cut | None = None  # behind the last clause mark
        self._gap: _Cut | None = None  # behind the last whitespace

    # --- one step: whitespace, a wide character or mark, or a run of anything else -----------------------------

    def _step(self, text: str) -> _Cut | None:
        if self._takes_words(text):
            return None
        char = text[self._pos]
        if self._wait is _After.WIDE_END and char in WIDE_TRAILERS:
            self._consume(char)
            return None
        if char.isspace():
            return self._space(text, char)
        if RUN_END.match(char):
            return self._wide(text, char)
        return self._run(text, char)

    def _takes_words(self, text: str) -> bool:
        """Plain words at once, if they are next and nothing is waited for; those that leave the clause room."""
        if self._word_start is not None or self._wait or self._letters_end or self._line is _Line.BLANK:
            return False
        words = _PLAIN_WORDS.match(text, self._pos, self._pos + self._max_letters - self._num_letters - 1)
        if words is None:
            return False
        self._num_words += words[0].count(" ")
        self._num_letters += len(words[0])
        self._pos = words.end()
        self._gap = self._here()
        return True

    def _consume(self, char: str) -> None:
        self._pos += 1
        self._num_letters += written_letters(char)

    def _space(self, text: str, char: str) -> _Cut | None:
        word, cut = self._end_word(text)
        if cut is not None:
            return cut
        if self._num_letters == self._lead:
            self._lead += 1
        line = self._line
        if char == "\n":
            self._line = _Line.BLANK
        self._consume(char)
        if word:
            cut = self._judge(word)
        elif isinstance(self._wait, _After):
            cut = self._resolve(char)
        if cut is None and char == "\n":
            cut = self._clause_mark() if line is _Line.TEXT else self._hard_end()
            self._line_start = _Cut(self._pos, self._num_letters, _Line.BLANK)
        if self._num_letters > self._lead:
            self._gap = self._here()
        return cut

    def _wide(self, text: str, char: str) -> _Cut | None:
        word, cut = self._end_word(text)
        if cut is None and word:
            cut = self._judge(word)
        if cut is None:
            cut = self._resolve(char)
        if cut is not None:
            return cut
        if self._line is _Line.BLANK:
            self._line = _Line.TEXT
        self._consume(char)
        if is_wide(char):
            self._num_words += 1
        elif char in WIDE_SENTENCE_ENDS:
            self._wait = _After.WIDE_END
        elif char in LONG_DASHES:
            is_range = self._pos > 1 and _ENDS_NUMBER.match(text, self._pos - 2) is not None
            self._wait = _After.RANGE_DASH if is_range else _After.DASH
        elif char in WIDE_CLAUSE_MARKS:
            return self._clause_mark()
        elif char == WIDE_LIST_MARK:
            self._gap = self._here()
        return None

    def _run(self, text: str, char: str) -> _Cut | None:
        if self._word_start is None:
            cut = self._resolve(char)
            if cut is not None:
                return cut
            self._word_start = self._pos
            self._word_opens_line = self._line is _Line.BLANK
            if self._word_opens_line:
                self._line = _Line.TEXT
        limit = min(len(text), self._pos + self._max_letters)
        run_end = RUN_END.search(text, self._pos, limit)
        end = run_end.start() if run_end else limit
        if self._takes_whole(text[self._pos : end]):
            self._num_letters += end - self._pos
            self._pos = end
        while self._pos < end and self._num_letters < self._max_letters:
            self._consume(text[self._pos])
        return None

    def _takes_whole(self, run: str) -> bool:
        """Whether `_consume`, character by character, would get to its end and count a letter each."""
        return run.isascii() and run.isalpha() and self._num_letters + len(run) <= self._max_letters

    # --- words -------------------------------------------------------------------------------------------------

    def _end_word(self, text: str) -> tuple[str, _Cut | None]:
        """The word that ends here, "" for none or a line's marker, and a cut before it."""
        word = "" if self._word_start is None else text[self._word_start : self._pos]
        self._word_start = None
        if word and self._word_opens_line and _LINE_MARKER.fullmatch(word):
            self._line = _Line.ITEM
            return "", self._line_start if self._num_words else None
        return word, self._resolve_letters(word) if word else None

    def _judge(self, word: str) -> _Cut | None:
        self._num_words += has_word(word)
        ending = word_ending(word, self._rules)
        match ending:
            case Ending.NONE if ends_phrase(word):
                self._num_words += len(word) // _PHRASE_WORD_CHARS
                return self._clause_mark()
            case Ending.NONE:
                return None
            case Ending.BEFORE_OPENER | Ending.UNLESS_CODE:
                self._letters_end = self._here(), ending
                return None
            case Ending.CLAUSE:
                return self._clause_mark()
            case Ending.SENTENCE:
                return self._sentence_end()
            case _:
                self._wait = ending
                return None

    def _resolve_letters(self, word: str) -> _Cut | None:
        """`word` is the one behind "U.S." or "no.": it tells whether the sentence was over."""
        found, self._letters_end = self._letters_end, None
        if found is None or not found[1].is_sentence_before_word(word, self._rules):
            return None
        cut = found[0]
        if self._is_first or cut.num_letters - self._lead >= self._min_letters:
            return cut
        self._mark = cut
        return None

    def _resolve(self, char: str) -> _Cut | None:
        """`char` is the one that was waited for."""
        wait = self._wait
        if wait is None or (wait in (_After.DASH, _After.RANGE_DASH) and char in LONG_DASHES):
            return None
        self._wait = None
        if wait is _After.RANGE_DASH and _BEGINS_NUMBER.match(char):
            return None
        if isinstance(wait, Ending):
            if wait.is_sentence_before(char):
                return self._sentence_end()
            return self._clause_mark() if wait.is_clause_before(char) else None
        return self._sentence_end() if wait is _After.WIDE_END else self._clause_mark()

    # --- what kind of place this is, and whether it is a cut ----------------------------------------------------

    def _here(self) -> _Cut:
        return _Cut(self._pos, self._num_letters, self._line)

    def _hard_end(self) -> _Cut | None:
        return self._here() if self._num_words else None

    def _sentence_end(self) -> _Cut | None:
        if self._num_words and (self._is_first or self._num_letters - self._lead >= self._min_letters):
            return self._here()
        self._mark = self._here()
        return None

    def _clause_mark(self) -> _Cut | None:
        self._mark = self._here()
        length = self._num_letters - self._lead
        is_early = self._is_first and length >= self._first_min_letters and self._num_words >= self._first_min_words
        return self._mark if self._num_words and (is_early or length >= self._soft_min_letters) else None

    def _forced_cut(self, text: str) -> _Cut | None:
        # A clause mark near the start would leave nearly all of it to be forced again.
        mark = self._mark
        if mark is not None and mark.num_letters * 4 >= self._max_letters and mark.at >= self._kept:
            return mark
        if self._gap is not None and self._gap.at >= self._kept:
            return self._gap
        if self._pos == len(text):  # what comes next may be a mark on the last letter
            return None
        at = inner_cut(text, self._pos)
        return self._here()._replace(at=at if at and at >= self._kept else self._pos)
