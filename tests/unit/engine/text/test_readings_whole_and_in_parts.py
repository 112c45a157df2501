"""Equal words are read equally however they come: whole, by word, by letter, over a stall or a flush."""

import re
from collections.abc import Iterable

import pytest

from voicegate.bench.readings import load, read_whole, words
from voicegate.engine.text.growing import known
from voicegate.engine.text.languages.definition import known_languages
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan
from voicegate.engine.text.word_rules import word_rules

LANGUAGES = sorted(known_languages())


class Speaker:
    """Says spans as they are cut."""

    def __init__(self, language: str, granularity: Granularity) -> None:
        self.segmenter = Segmenter(SegmenterConfig(granularity=granularity, language=language))
        self._reader = SpanReader(language)
        self._parts: list[str] = []

    def say(self, spans: Iterable[TextSpan]) -> None:
        for span in spans:
            self._parts.append(self._reader.read(span))
            self._reader.note_said(span)

    def said(self) -> str:
        self.say(self.segmenter.flush())
        return words(" ".join(self._parts))


def pieces(text: str) -> list[str]:
    return re.findall(r"\s*\S+", text)


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("language", LANGUAGES)
def test_by_word_and_by_letter(language: str, granularity: Granularity) -> None:
    wrong = []
    for row in load(language):
        whole = words(read_whole(row.text, language))
        for parts in (pieces(row.text), list(row.text), [row.text]):
            speaker = Speaker(language, granularity)
            for part in parts:
                speaker.say(speaker.segmenter.push(part))
            if (said := speaker.said()) != whole:
                wrong.append((row.text, said, whole))
    assert wrong == []


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("language", LANGUAGES)
def test_over_a_stall_behind_any_word(language: str, granularity: Granularity) -> None:
    wrong = []
    for row in load(language):
        whole = words(read_whole(row.text, language))
        speaker = Speaker(language, granularity)
        for part in pieces(row.text):
            speaker.say(speaker.segmenter.push(part))
            speaker.say(speaker.segmenter.flush_stalled())
        if (said := speaker.said()) != whole:
            wrong.append((row.text, said, whole))
    assert wrong == []


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("language", LANGUAGES)
def test_over_a_flush_before_the_first_number(language: str, granularity: Granularity) -> None:
    """A flush says all that is there: what a number is by the words before it is remembered."""
    wrong = []
    for row in load(language):
        number = re.search(r"\A\D*[^\W\d_]{2}:? (?=[^\s\w]?\d)", row.text)
        if number is None:
            continue
        whole = words(read_whole(row.text, language))
        speaker = Speaker(language, granularity)
        speaker.say(speaker.segmenter.push(row.text[: number.end()]))
        speaker.say(speaker.segmenter.flush())
        speaker.say(speaker.segmenter.push(row.text[number.end() :]))
        if (said := speaker.said()) != whole:
            wrong.append((row.text, said, whole))
    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_said_of_a_sentence_that_grows_stays_so(language: str) -> None:
    """Incremental mode says all words but the last, before the sentence is whole."""
    wrong = []
    for row in load(language):
        whole = words(read_whole(row.text, language))
        text = ""
        for part in pieces(row.text):
            text += part
            said = text[: known(text, word_rules(language)).said]
            spoken = words(SpanReader(language).read(TextSpan(said, 0, len(said)), is_growing=True))
            if not whole.startswith(spoken):
                wrong.append((said, spoken, whole))
    assert wrong == []
