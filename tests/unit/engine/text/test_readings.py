"""The tables of readings: well formed, and read right to the share that is reached."""

import re

import pytest

from voicegate.bench.readings import languages, load, measure, read_spans, read_whole, words
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig


@pytest.mark.parametrize("language", languages())
def test_tables_are_well_formed(language: str) -> None:
    rows = load(language)
    assert len({row.text for row in rows}) == len(rows)
    for row in rows:
        assert all((row.text.strip(), *map(str.strip, row.spoken), row.domain, row.source)), row


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_share_that_is_reached(language: str) -> None:
    wrong, shares = measure(language)
    assert not wrong, f"read wrong now, of {sum(num for _, num in shares.values())}: {wrong[:3]}"


ROWS = [
    pytest.param(row.text, language, id=f"{language}-{row.text}") for language in ("en", "zh") for row in load(language)
]
# A stop within a word ends a sentence where nothing comes behind it for so long: main. | py
STOP_WITHIN_WORD = re.compile(r"\.(?=[A-Za-z])")


@pytest.mark.parametrize(("text", "language"), ROWS)
def test_the_same_words_however_they_come(text: str, language: str) -> None:
    whole = words(read_whole(text, language))
    by_word = Segmenter(SegmenterConfig(granularity=Granularity.WORD))
    spans = [*by_word.push(text), *by_word.flush()]
    assert words(read_spans(spans, language)) == whole, "word by word"
    for size in (1, 3):
        segmenter = Segmenter()
        spans = [span for start in range(0, len(text), size) for span in segmenter.push(text[start : start + size])]
        assert words(read_spans([*spans, *segmenter.flush()], language)) == whole, f"in messages of {size}"
    segmenter, spans = Segmenter(), []
    within_words = {match.end() for match in STOP_WITHIN_WORD.finditer(text)}
    for place, char in enumerate(text, start=1):
        spans += segmenter.push(char)
        spans += [] if place in within_words else segmenter.flush_stalled()
    assert words(read_spans([*spans, *segmenter.flush()], language)) == whole, "with a stall behind each character"


@pytest.mark.parametrize(("text", "language"), ROWS)
def test_what_a_number_is_is_remembered_over_a_flush(text: str, language: str) -> None:
    """At each place between two words that are not read together."""
    by_word = Segmenter(SegmenterConfig(granularity=Granularity.WORD))
    places = [span.char_end for span in [*by_word.push(text), *by_word.flush()] if not span.is_code]
    whole = words(read_whole(text, language))
    for place in places:
        segmenter = Segmenter()
        spans = [*segmenter.push(text[:place]), *segmenter.flush(), *segmenter.push(text[place:]), *segmenter.flush()]
        assert words(read_spans(spans, language)) == whole, f"a flush behind {text[:place]!r}"
