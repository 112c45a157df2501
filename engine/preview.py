"""Preview of a text's words and clauses: without a model. For checks of a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.segmenter import Segmenter, SegmenterConfig, TextSpan
from voicegate.engine.text.tags import EXPRESSIVE_TAGS, NOTATION_TOKENS

# No first or later sentence is cut at a comma for the sake of an early sound.
_WHOLE_LETTERS = 1 << 20
# Lower -> more calls; higher -> a longer time until the next sentences come: 5 ms for texts that are hard to read.
_BLOCK_CHARS = 512


@dataclass(frozen=True, slots=True)
class ReadClause:
    text: str  # as written; clauses follow each other without gaps
    spoken: str  # "": nothing is said of it: code, thoughts, a pause
    char_start: int  # into the text
    char_end: int
    pause_ms: int  # that it makes; 0: none


def preview(
    text: str, language: str, *, dictionaries: Sequence[Dictionary] = (), is_normalized: bool = True
) -> list[ReadClause]:
    """Preview of a text that comes at once, in `clause` mode, and a model that has all tags. Takes some 10 us a
    character."""
    pronunciation = Pronunciation(dictionaries)
    segmenter = Segmenter(SegmenterConfig(language=language, has_breaks=is_normalized), pronunciation=pronunciation)
    reader = SpanReader(
        language,
        tags=EXPRESSIVE_TAGS | NOTATION_TOKENS,
        pronunciation=pronunciation,
        is_normalized=is_normalized,
    )
    clauses: list[ReadClause] = []
    for span in (*segmenter.push(text), *segmenter.flush()):
        words = reader.read(span)
        spoken = words + reader.end_of(words, span.text)
        clauses.append(ReadClause(span.text, spoken, span.char_start, span.char_end, span.pause_ms))
        reader.note_said(span)
    return clauses


def sentences(text: str, language: str, *, has_breaks: bool = True) -> Iterator[list[str]]:
    """Sentences as written, some at a time; without code and thoughts, of which nothing is said.

    Takes some 4 us a character.
    """
    config = SegmenterConfig(
        first_min_letters=_WHOLE_LETTERS, soft_min_letters=_WHOLE_LETTERS, language=language, has_breaks=has_breaks
    )
    segmenter = Segmenter(config)
    for start in range(0, len(text), _BLOCK_CHARS):
        yield [span.text for span in segmenter.push(text[start : start + _BLOCK_CHARS]) if _is_said(span)]
    yield [span.text for span in segmenter.flush() if _is_said(span)]


def _is_said(span: TextSpan) -> bool:
    return not span.is_code or span.pause_ms > 0
