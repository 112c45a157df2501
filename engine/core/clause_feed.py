"""Streamed text -> the clauses of one utterance: cut, normalised, tokenised. Knows text only.

What is pushed is only recorded; `read` takes it on in bites of bounded work, as far ahead as speech needs it. Text,
flushes and the end keep their order, and when they are read changes nothing in what is said.
By clause, every span of the segmenter is one LLM pass.
In bistream, words are added to the open clause while the LLM already speaks it. A flush closes it, the end, or a
sentence end once it is long.
Incrementally, clauses are sentences, and `grow` makes an open one of what is known of a sentence that is not finished.
"""

from collections import deque
from io import SEEK_END, StringIO
from typing import Final

from voicegate.engine import units
from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.text.breaks import MAX_PAUSES_MS
from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.growing import known
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.phrase_breaks import PhraseBreaks
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.segmenter import (
    FIRST_MIN_LETTERS,
    MAX_LETTERS,
    SOFT_MIN_LETTERS,
    Granularity,
    Segmenter,
    SegmenterConfig,
    TextSpan,
)
from voicegate.engine.text.splitting import part
from voicegate.engine.text.spoken_length import spoken_letters, written_letters
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.text.word_rules import word_rules

# Complete clauses that no LLM pass has begun: text is read until there are so many.
# Lower -> the LLM may wait for its next clause; higher -> more is read of text that a cancel throws away.
READ_AHEAD_CLAUSES: Final = 2
# Characters of one `read`. Lower -> more calls for a text; higher -> other streams wait longer for one that is read.
BITE_CHARS: Final = 64

# A slow voice takes so much for a letter, its breaks included: 92 ms, and a fifth for passes slower than its mean. No
# clause has more letters than fit into its speech tokens at this pace. Lower -> a slow voice's speech is cut off;
# higher -> more seams in long clauses.
SLOW_MS_PER_LETTER: Final = 110
# A bistream pass keeps all its audio as context. So it ends at the first sentence end after this share of its letters,
# and before any word that it has no room for. Lower -> more seams in the prosody; higher -> more memory a stream.
_BISTREAM_SHARE: Final = 0.7
# ... or of its text, where nearly nothing of it is said: dots, code.
_BISTREAM_MAX_CHARS: Final = 2000
# A dictionary may add so much to a span before it is parted: reading is the greater part of a bite. Lower -> spans full
# of long entries get more seams; higher -> other streams wait longer for one that is read.
_MAX_ADDED_CHARS: Final = 128
_SENTENCE_ENDS = (".", "?", "!", "。", "？", "！", "…")


class ClauseFeed:
    def __init__(
        self,
        key: int,
        mode: SpeakingMode,
        tokenizer: TextTokenizer,
        *,
        language: str,
        max_clause_tokens: int,
        pronunciation: Pronunciation | None = None,
        is_normalized: bool = True,
    ) -> None:
        self.clauses: deque[Clause] = deque()  # not yet wholly spoken, in order; [0] is heard first
        self.is_ended = False  # the end was read: no clause follows
        self.is_bistream = mode is SpeakingMode.BISTREAM
        self.is_incremental = mode is SpeakingMode.INCREMENTAL
        self._key = key
        self._tokenizer = tokenizer
        self.pronunciation = pronunciation or Pronunciation()
        self._reader = SpanReader(
            language, tags=tokenizer.tags, pronunciation=self.pronunciation, is_normalized=is_normalized
        )
        self._rules = word_rules(language)
        self._max_letters = max_letters(max_clause_tokens)
        self._segmenter = Segmenter(
            SegmenterConfig(
                granularity=Granularity.WORD if self.is_bistream else Granularity.CLAUSE,
                max_letters=min(MAX_LETTERS, self._max_letters),
                # A sentence's part that is said before it is finished needs no comma.
                first_min_letters=SOFT_MIN_LETTERS if self.is_incremental else FIRST_MIN_LETTERS,
                language=language,
                has_breaks=is_normalized,
            ),
            pronunciation=pronunciation,
        )
        self._written = StringIO()
        self.num_chars = 0  # of `text`
        self._num_cut = 0  # characters that the segmenter has been given
        self._marks: deque[tuple[int, str | None]] = deque()  # after so many characters, a flush or (None) the end
        self._spans: deque[TextSpan] = deque()  # cut, but in no clause yet
        self._grown = ""  # what the open clause knows, in incremental mode
        self._breaks = PhraseBreaks()
        self._paused_ms: int | None = None  # by breaks after the last words; None: there were no words yet

    @property
    def has_unread(self) -> bool:
        """Whether `read` has anything to do."""
        return bool(self._spans or self._marks) or self._num_cut < self.num_chars

    @property
    def wants_reading(self) -> bool:
        """Whether speech needs more clauses soon than are there, and `read` may make them."""
        return self.has_unread and len([each for each in self.clauses if each.is_ahead]) < READ_AHEAD_CLAUSES

    @property
    def lacks_clause(self) -> bool:
        """Whether there is none that the LLM is at work on or could begin."""
        return not any(each.is_ahead or each.state is ClauseState.GENERATING for each in self.clauses)

    @property
    def is_waiting(self) -> bool:
        """Whether all is read, and some of it is not said before more text, a flush or the end comes."""
        if self.is_ended or self.has_unread:
            return False
        return self._open_clause() is not None or bool(self._segmenter.pending_text.strip())

    @property
    def is_heard(self) -> bool:
        """Whether what waits belongs to a pass that has begun, which is given its words as they come."""
        clause = self._open_clause()
        return self.is_bistream or (clause is not None and clause.is_begun)

    @property
    def text(self) -> str:
        """All text pushed, as written."""
        return self._written.getvalue()

    @property
    def has_growing(self) -> bool:
        """Whether `grow` may find something to say."""
        return self.is_incremental and not self.has_unread and not self.is_ended

    # --- what comes: recorded, in order -----------------------------------------------------------------------

    def push(self, text: str) -> None:
        self._written.seek(0, SEEK_END)
        self._written.write(text)
        self.num_chars += len(text)

    def flush(self, flush_id: str) -> None:
        """Everything before it becomes a complete clause; the flush is met when the last clause is spoken."""
        self._marks.append((self.num_chars, flush_id))

    def end(self) -> None:
        self._marks.append((self.num_chars, None))

    # --- reading ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """One bite: at most BITE_CHARS are cut, and one span at most becomes speech."""
        if not self._spans:
            self._cut()
        if self._spans:
            self._take(self._spans.popleft())

    def read_all(self) -> None:
        """Without a bound: for a whole text outside the engine's loop."""
        while self.has_unread:
            self.read()

    def stalled(self, *, says_half_words: bool) -> None:
        """Completes all that can be said without more text. `says_half_words`: else they wait, and half numbers do."""
        if not self.is_waiting:
            return
        if says_half_words and (pending := self._segmenter.pending_text):
            self._spans.append(self._segmenter.take(len(pending)))
        else:
            self._spans.extend(self._segmenter.flush_stalled())
        while self._spans:
            self._take(self._spans.popleft())
        if self.is_bistream:
            self._close_open_clause()

    def give_up(self, clause: Clause) -> None:
        """The pass of the open clause takes no more text: words that it was not given are another pass's."""
        if not self.is_bistream:
            self._leave_rest(clause)
        clause.is_text_complete = True

    def _leave_rest(self, clause: Clause) -> None:
        self._grown = ""
        self._paused_ms = 0
        # It has said nothing of the last word yet.
        clause.text, clause.num_letters = clause.decided_text, clause.num_decided_letters
        length = len(clause.text)
        if not self._spans:  # the sentence is not over
            self._reader.note_said(self._segmenter.take(length))
            return
        said, rest = self._spans.popleft().split(length)
        self._reader.note_said(said)
        if rest.text:
            self._spans.appendleft(rest)

    @property
    def pending_letters(self) -> tuple[int, int]:
        """About what is known of the open sentence, in all words but the last and in all: cheaper than `grow`."""
        pending = self._segmenter.pending_text
        num_of_all = sum(map(written_letters, "".join(pending.split())))
        if not pending or is_wide(pending[-1]):
            return num_of_all, num_of_all
        last = pending.rsplit(maxsplit=1)[-1] if pending.strip() else ""
        return num_of_all - sum(map(written_letters, last.rstrip())), num_of_all

    def grow(self) -> Clause | None:
        """The open clause of a sentence that is not finished, with all that is known of it; None: nothing is.

        Incremental mode; what is not read yet (`has_unread`) is not known.
        """
        clause, pending = self._open_clause(), self._segmenter.pending_text
        if pending == self._grown:
            return clause
        self._grown = pending
        # Text that may have been said stays so, though its successor would have kept it back: 取件码 before a number.
        start, lengths = self._segmenter.pending_start, known(pending, self._rules).at_least(self._segmenter.num_kept)
        if self._is_too_much(pending[: lengths.read]):
            return clause
        words = self._reader.read(TextSpan(pending[: lengths.read], start, start + lengths.read), is_growing=True)
        num_letters = spoken_letters(words)
        if not words or num_letters > self._max_letters:  # more does not fit into the pass
            return clause
        if clause is None:
            clause = Clause(self._key, start, "", [], is_text_complete=False)
            self.clauses.append(clause)
        whole_length = self.pronunciation.whole_length(pending[: lengths.read], lengths.said)
        num_said = max(whole_length, self._segmenter.num_kept)
        said = self._reader.read(TextSpan(pending[:num_said], start, start + num_said), is_growing=True)
        self._give(clause, pending[: lengths.read], words, num_letters)
        clause.num_sayable_letters = spoken_letters(said)
        clause.num_open_chars = lengths.read - num_said
        self._segmenter.keep(num_said)
        return clause

    def _give(self, clause: Clause, text: str, words: str, num_letters: int) -> None:
        clause.text = text
        clause.text_ids = list(self._tokenizer.encode_spoken(words))
        clause.num_letters = num_letters

    def _cut(self) -> None:
        end = self._marks[0][0] if self._marks else self.num_chars
        if self._num_cut < end:
            self._written.seek(self._num_cut)
            piece = self._written.read(min(BITE_CHARS, end - self._num_cut))
            self._num_cut += len(piece)
            self._spans.extend(self._segmenter.push(piece))
        elif self._marks and self._segmenter.pending:
            self._spans.extend(self._segmenter.flush())
        elif self._marks:
            self._meet(self._marks.popleft()[1])

    def _meet(self, flush_id: str | None) -> None:
        """Takes a flush or the end (None). All text before it is in clauses."""
        self._close_open_clause()
        if flush_id is None:
            self.is_ended = True
            return
        if not self.clauses:
            self._add_silent()
        self.clauses[-1].flush_ids.append(flush_id)

    def _pause(self, length_ms: int) -> None:
        """After all that was said so far, and other breaks. None before the first word: that would be no speech."""
        self._close_open_clause()
        if self._paused_ms is None:
            return
        length_ms = min(length_ms, MAX_PAUSES_MS - self._paused_ms)
        self._paused_ms += length_ms
        if not self.clauses or self.clauses[-1].flush_ids:
            self._add_silent()
        self.clauses[-1].pause_ms += length_ms

    def _add_silent(self) -> None:
        """Adds silent text where no clause is left to wait for."""
        self.clauses.append(Clause(self._key, 0, "", [], is_text_complete=True))

    def _take(self, span: TextSpan) -> None:
        if span.pause_ms:
            self._pause(span.pause_ms)
            return
        if self._is_too_much(span.text) and (parts := self._parts(span)):
            self._spans.extendleft(reversed(parts))
            return
        words = self._reader.read(span, is_growing=self.is_incremental and self._open_clause() is not None)
        num_letters = spoken_letters(words)
        if words:
            self._paused_ms = 0
        if num_letters > self._max_letters and (parts := self._parts(span)):
            self._spans.extendleft(reversed(parts))
            return
        self._reader.note_said(span)
        if self.is_bistream:
            self._extend(span, words, num_letters)
            return
        words += self._reader.end_of(words, span.text)
        if (grown := self._open_clause()) is not None:
            self._complete(grown, span, words, num_letters)
        elif words:
            self._begin(span, words, num_letters)

    def _is_too_much(self, text: str) -> bool:
        """To be read in one bite, with what the dictionary makes of it."""
        return len(self.pronunciation.said(text)) > len(text) + _MAX_ADDED_CHARS

    def _parts(self, span: TextSpan) -> tuple[TextSpan, TextSpan] | None:
        """Parts of a span that takes too long to say. Words of a growing clause that may have been said stay whole."""
        grown = None if self.is_bistream else self._open_clause()
        length = 0 if grown is None else len(grown.text)
        if grown is not None and _is_within_word(span.text, length):  # the last that it knew, which has gone on since
            length = len(grown.decided_text)
        return span.split(length) if 0 < length < len(span.text) else part(span, self._rules)

    def _begin(self, span: TextSpan, words: str, num_letters: int) -> None:
        clause = Clause(
            self._key,
            span.char_start,
            span.text,
            list(self._tokenizer.encode_spoken(words)),
            is_text_complete=not self.is_bistream,
            num_letters=num_letters,
        )
        self.clauses.append(clause)

    def _extend(self, span: TextSpan, words: str, num_letters: int) -> None:
        clause = self._open_clause()
        if clause is not None:
            has_room = clause.num_letters + num_letters <= self._max_letters and len(clause.text) < _BISTREAM_MAX_CHARS
            if not has_room:
                self._close_open_clause()
                clause = None
        if clause is None:
            if words:
                self._begin(span, self._breaks.begin(span.text, words), num_letters)
            return
        words = self._breaks.go_on(span.text, words)
        clause.text += span.text if words else " " * len(span.text)  # words that are not said have no time
        clause.text_ids += self._tokenizer.encode_spoken(words)
        clause.num_letters += num_letters
        is_sentence_end = span.text.rstrip().endswith(_SENTENCE_ENDS)
        if is_sentence_end and clause.num_letters >= _BISTREAM_SHARE * self._max_letters:
            clause.is_text_complete = True

    def _complete(self, clause: Clause, span: TextSpan, words: str, num_letters: int) -> None:
        """Completes a sentence that grew; where nothing is left of it to say, its beginning stands."""
        self._grown = ""
        if words or not clause.is_begun:
            self._give(clause, span.text, words, num_letters)
        clause.is_text_complete = True

    def _open_clause(self) -> Clause | None:
        return self.clauses[-1] if self.clauses and not self.clauses[-1].is_text_complete else None

    def _close_open_clause(self) -> None:
        clause = self._open_clause()
        if clause is not None:
            if self.is_bistream:
                clause.text_ids += self._tokenizer.encode_spoken(self._reader.end_of(*self._breaks.said))
            clause.is_text_complete = True


def _is_within_word(text: str, length: int) -> bool:
    before, after = text[:length][-1:], text[length:][:1]
    return before.isalnum() and after.isalnum() and not is_wide(before)


def max_letters(max_clause_tokens: int) -> int:
    """Letters that a slow voice can say in so many speech tokens."""
    return max(max_clause_tokens * units.MS_PER_TOKEN // SLOW_MS_PER_LETTER, 1)
