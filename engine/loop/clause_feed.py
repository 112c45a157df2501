"""Streamed text -> the clauses of one utterance: cut, normalised, tokenised. Knows text only.

By clause, every span of the segmenter is one LLM pass. In bistream, words are added to the open clause while the
LLM already speaks it; it is closed at a flush, at the end, or at a sentence end once it is long.
"""

from collections import deque

from voicegate.engine.interface import SpeakingMode
from voicegate.engine.loop.clause import Clause
from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan
from voicegate.engine.text.tokenizer import TextTokenizer

# A bistream pass keeps all its audio as context: it ends at the first sentence end past the lower bound, and at
# any word past the upper one. Lower -> more seams in the prosody; higher -> more memory a stream, and max_clause_tokens
# cuts speech off: at 92 ms a letter (a slow voice) 320 characters take about 590 of its 750 tokens.
BISTREAM_SOFT_CHARS = 240
BISTREAM_HARD_CHARS = 320
_SENTENCE_ENDS = (".", "?", "!", "。", "？", "！", "…")


class ClauseFeed:
    def __init__(self, utterance_key: int, mode: SpeakingMode, tokenizer: TextTokenizer, *, language: str) -> None:
        self.clauses: deque[Clause] = deque()  # not yet wholly spoken, in order; [0] is heard first
        self.is_ended = False
        self.is_bistream = mode is SpeakingMode.BISTREAM
        self._key = utterance_key
        self._tokenizer = tokenizer
        self._reader = SpanReader(language, tags=tokenizer.tags)
        self._segmenter = Segmenter(
            SegmenterConfig(granularity=Granularity.WORD if self.is_bistream else Granularity.CLAUSE)
        )
        self._written: list[str] = []

    @property
    def is_waiting(self) -> bool:
        """Whether there is text that is not said before more of it, a flush or the end comes."""
        return not self.is_ended and (self._open_clause() is not None or bool(self._segmenter.pending.strip()))

    @property
    def text(self) -> str:
        """All text pushed, as written."""
        return "".join(self._written)

    def push(self, text: str) -> None:
        self._written.append(text)
        self._take(self._segmenter.push(text))

    def flush(self, flush_id: str) -> None:
        """Everything pending becomes a complete clause; the flush is met when the last clause is spoken."""
        self._take(self._segmenter.flush())
        self._close_open_clause()
        if not self.clauses:
            self.clauses.append(Clause(self._key, 0, "", [], is_text_complete=True))
        self.clauses[-1].flush_ids.append(flush_id)

    def stalled(self) -> None:
        """What can be said without more text becomes complete; half a word or number still waits."""
        self._take(self._segmenter.flush_stalled())
        self._close_open_clause()

    def end(self) -> None:
        self._take(self._segmenter.flush())
        self._close_open_clause()
        self.is_ended = True

    def _take(self, spans: list[TextSpan]) -> None:
        for span in spans:
            if self.is_bistream:
                self._extend(span)
            else:
                self._append(span, is_complete=True)

    def _append(self, span: TextSpan, *, is_complete: bool) -> None:
        text_ids = list(self._tokenizer.encode_spoken(self._reader.read(span)))
        self.clauses.append(Clause(self._key, span.char_start, span.text, text_ids, is_complete))

    def _extend(self, span: TextSpan) -> None:
        clause = self._open_clause()
        if clause is None:
            self._append(span, is_complete=False)
            return
        words = self._reader.read(span)
        # Byte-level BPE keeps the blank with the word that follows it; the first word of a pass has none.
        is_first = not clause.is_active and not clause.text_ids
        if words and words[0].isalnum() and not is_wide(words[0]) and not is_first:
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
