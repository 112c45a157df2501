"""Streamed text -> the clauses of one utterance: cut, normalised, tokenised. Knows text only.

What is pushed is only recorded; `read` takes it on in bites of bounded work, as far ahead as speech needs it. Text,
flushes and the end keep their order, and when they are read changes nothing in what is said.
By clause, every span of the segmenter is one LLM pass. In bistream, words are added to the open clause while the
LLM already speaks it; it is closed at a flush, at the end, or at a sentence end once it is long.
"""

from collections import deque
from io import SEEK_END, StringIO
from typing import Final

from voicegate.engine.interface import SpeakingMode
from voicegate.engine.loop.clause import Clause, ClauseState
from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan
from voicegate.engine.text.tokenizer import TextTokenizer

# Complete clauses that no LLM pass has begun: text is read until there are so many.
# Lower -> the LLM may wait for its next clause; higher -> more is read of text that a cancel throws away.
READ_AHEAD_CLAUSES: Final = 2
# Of one `read`. Lower -> more calls for the same text; higher -> other streams wait longer behind one that is read.
BITE_CHARS: Final = 64

# A bistream pass keeps all its audio as context: it ends at the first sentence end past the lower bound, and at
# any word past the upper one. Lower -> more seams in the prosody; higher -> more memory a stream, and max_clause_tokens
# cuts speech off: at 92 ms a letter (a slow voice) 320 characters take about 590 of its 750 tokens.
BISTREAM_SOFT_CHARS = 240
BISTREAM_HARD_CHARS = 320
_SENTENCE_ENDS = (".", "?", "!", "。", "？", "！", "…")


class ClauseFeed:
    def __init__(self, utterance_key: int, mode: SpeakingMode, tokenizer: TextTokenizer, *, language: str) -> None:
        self.clauses: deque[Clause] = deque()  # not yet wholly spoken, in order; [0] is heard first
        self.is_ended = False  # the end was read: no clause follows
        self.is_bistream = mode is SpeakingMode.BISTREAM
        self._key = utterance_key
        self._tokenizer = tokenizer
        self._reader = SpanReader(language, tags=tokenizer.tags)
        self._segmenter = Segmenter(
            SegmenterConfig(granularity=Granularity.WORD if self.is_bistream else Granularity.CLAUSE)
        )
        self._written = StringIO()
        self._num_written = 0
        self._num_cut = 0  # characters that the segmenter has been given
        self._marks: deque[tuple[int, str | None]] = deque()  # behind so many characters, a flush or (None) the end
        self._spans: deque[TextSpan] = deque()  # cut, but in no clause yet

    @property
    def has_unread(self) -> bool:
        """Whether `read` has anything to do."""
        return bool(self._spans or self._marks) or self._num_cut < self._num_written

    @property
    def wants_reading(self) -> bool:
        """Whether speech needs more clauses soon than are there, and `read` may make them."""
        return self.has_unread and sum(map(_is_ahead, self.clauses)) < READ_AHEAD_CLAUSES

    @property
    def is_waiting(self) -> bool:
        """Whether all is read, and some of it is not said before more text, a flush or the end comes."""
        if self.is_ended or self.has_unread:
            return False
        return self._open_clause() is not None or bool(self._segmenter.pending.strip())

    @property
    def text(self) -> str:
        """All text pushed, as written."""
        return self._written.getvalue()

    # --- what comes: recorded, in order -----------------------------------------------------------------------

    def push(self, text: str) -> None:
        self._written.seek(0, SEEK_END)
        self._written.write(text)
        self._num_written += len(text)

    def flush(self, flush_id: str) -> None:
        """Everything before it becomes a complete clause; the flush is met when the last clause is spoken."""
        self._marks.append((self._num_written, flush_id))

    def end(self) -> None:
        self._marks.append((self._num_written, None))

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

    def stalled(self) -> None:
        """What can be said without more text becomes complete; half a word or number still waits."""
        if not self.is_waiting:
            return
        for span in self._segmenter.flush_stalled():
            self._take(span)
        self._close_open_clause()

    def _cut(self) -> None:
        end = self._marks[0][0] if self._marks else self._num_written
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
        """A flush or the end (None), all before which is in clauses."""
        self._close_open_clause()
        if flush_id is None:
            self.is_ended = True
            return
        if not self.clauses:
            self.clauses.append(Clause(self._key, 0, "", [], is_text_complete=True))
        self.clauses[-1].flush_ids.append(flush_id)

    def _take(self, span: TextSpan) -> None:
        if self.is_bistream:
            self._extend(span)
        else:
            self._append(span, is_complete=True)

    def _append(self, span: TextSpan, *, is_complete: bool) -> None:
        text_ids = list(self._tokenizer.encode_spoken(self._reader.read(span)))
        if text_ids:
            self.clauses.append(Clause(self._key, span.char_start, span.text, text_ids, is_complete))

    def _extend(self, span: TextSpan) -> None:
        clause = self._open_clause()
        if clause is None:
            self._append(span, is_complete=False)
            return
        words = self._reader.read(span)
        # Byte-level BPE keeps the blank with the word that follows it; the first word of a pass has none.
        if words and words[0].isalnum() and not is_wide(words[0]):
            words = " " + words
        clause.text += span.text
        clause.text_ids += self._tokenizer.encode_spoken(words)
        is_sentence_end = span.text.rstrip().endswith(_SENTENCE_ENDS)
        length = len(clause.text)
        if length >= BISTREAM_HARD_CHARS or (length >= BISTREAM_SOFT_CHARS and is_sentence_end):
            clause.is_text_complete = True

    def _open_clause(self) -> Clause | None:
        return self.clauses[-1] if self.clauses and not self.clauses[-1].is_text_complete else None

    def _close_open_clause(self) -> None:
        clause = self._open_clause()
        if clause is not None:
            clause.is_text_complete = True


def _is_ahead(clause: Clause) -> bool:
    return clause.state is ClauseState.WAITING and clause.is_text_complete and bool(clause.text_ids)
