"""Text as written -> text as said. Pure; nothing here knows models, but for the tags that they have.

The order: what a dictionary says of words, characters, tags, markup, formulas, addresses, then the language's reader,
which leaves only words, their marks, and the model's own tags.
"""

import re
from collections.abc import Set
from typing import Final

from voicegate.engine.interface import base_language
from voicegate.engine.text.breaks import without_breaks
from voicegate.engine.text.chinese.quantities import read_star_keys as read_chinese_star_keys
from voicegate.engine.text.chinese.reader import read_chinese
from voicegate.engine.text.cleanup import PAUSE, clean_characters
from voicegate.engine.text.context import end_of, may_depend, read_behind
from voicegate.engine.text.english.codes import read_star_keys
from voicegate.engine.text.english.reader import is_read_as_written, read_english
from voicegate.engine.text.language import DECIDING_WORD, detect_language, has_deciding_word, may_be_of_hint
from voicegate.engine.text.languages.measures import with_named_currencies
from voicegate.engine.text.languages.reader import reader_of
from voicegate.engine.text.latex import read_latex
from voicegate.engine.text.markup import (
    strip_line_markup,
    strip_model_tags,
    strip_tags_and_links,
    unescape,
    unescape_entities,
    without_emphasis,
)
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.punctuation import end_of_words, tidy
from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.spans_of_numbers import with_long_dashes_of_ranges, with_tight_ranges
from voicegate.engine.text.spelling import spell
from voicegate.engine.text.stars import read_hidden_digits, with_operator_signs
from voicegate.engine.text.tags import (
    is_spelling_behind,
    read_around_tags,
    spelling_of,
    split_tags,
    with_own_tags,
    without_spelling,
    without_tags,
)
from voicegate.engine.text.unsaid import without_unsaid
from voicegate.engine.text.web import CHINESE, ENGLISH, read_addresses

# Regions that write 5/1 for the fifth of January.
_DAY_FIRST_REGIONS: Final = frozenset({"gb", "uk", "ie", "au", "nz", "in", "za", "sg", "hk"})
# Behind a letter two of them would be a number: x²² is x to the power of 22.
_POWERS: Final = re.compile("([²³])[²³]+")
_CHINESE: Final = frozenset({"zh", "yue"})
_UNBLANKED: Final = _CHINESE | {"ja"}
# Languages whose readers are told nothing of what was said before.
_READ_BEHIND: Final = _CHINESE | {"en"}


def speakable(
    text: str,
    language: str = "en",
    *,
    tags: Set[str] = frozenset(),
    is_language_decided: bool = False,
    before: str = "",
) -> str:
    """The LLM's text for `text`; "" if nothing. Never raises; changes nothing in text that it has returned.

    `language` is what the script leaves open (`language.detect_language`), as "en" or "en-GB": the region decides
    whether 5/1/2024 is in May (no region: it is). A language without a reader keeps its digits.
    `tags`: of `tags.EXPRESSIVE_TAGS`, those that the model knows. They stay as they are; the others are left out, as is
    anything like <|...|>. `is_language_decided`: the script decides nothing. `before`: what was said already, as it was
    written.
    """
    cleaned = clean_characters(with_tight_ranges(without_breaks(unescape_entities(without_unsaid(text)))))
    pieces = split_tags(without_tags(with_own_tags(cleaned), tags))
    pieces[::2] = [read_latex(strip_tags_and_links(piece)) for piece in pieces[::2]]
    plain = without_emphasis(" ".join(pieces[::2]))
    spoken = language if is_language_decided else detect_language(plain, language)
    spellings = map(spelling_of, pieces[1::2])
    pieces[1::2] = [
        tag if letters is None else spell(letters, spoken) for tag, letters in zip(pieces[1::2], spellings, strict=True)
    ]

    def read(piece: str) -> str:
        nonlocal before
        words = _read(piece, spoken, before)
        before += piece
        return words

    return read_around_tags(pieces, read, has_blanks=base_language(spoken) not in _UNBLANKED)


def as_written(text: str, *, tags: Set[str] = frozenset()) -> str:
    """`text` with its numbers, signs and markup, for a model that reads them itself; "" if it has no letter or digit.

    Without what nobody can say (control characters, pictures) and the tags that the model does not have.
    """
    cleaned = without_spelling(strip_model_tags(without_tags(clean_characters(text), tags))).replace(PAUSE, " - ")
    return " ".join(cleaned.split()) if any(map(str.isalnum, cleaned)) else ""


class SpanReader:
    """Reads the spans of one utterance, in order: "5 km" is in the language of what was before it."""

    def __init__(
        self,
        language: str,
        *,
        tags: Set[str] = frozenset(),
        pronunciation: Pronunciation | None = None,
        is_normalized: bool = True,
    ) -> None:
        self._language = language
        self._tags = tags
        self._pronunciation = pronunciation or Pronunciation()
        self._is_normalized = is_normalized
        self._is_english = base_language(language) == "en"
        self._latest = language
        self._said = ""  # the end of what was, as it is to be read
        self._said_language = language
        self._before = "", "", ""  # that, its language, and how it is read
        self._is_spelling = False  # in a tag that was opened before

    def note_said(self, span: TextSpan) -> None:
        """Notes that all text from here on stands after it."""
        if span.is_code:
            return
        self._said = end_of(self._said + self._pronunciation.said(span.text))
        self._said_language = self._latest
        self._is_spelling = is_spelling_behind(span.text, was_spelling=self._is_spelling)

    def read(self, span: TextSpan, *, is_growing: bool = False) -> str:
        """Words of a span of the segmenter; "" for fenced code and thoughts.

        `is_growing`: more of it may come, or came when its beginning may have been said. A few Latin words decide
        nothing then: iPhone 15 Pro | 的价格.
        """
        if span.is_code:
            return ""
        text = self._pronunciation.said(span.text)
        if not self._is_normalized:
            return as_written(text, tags=self._tags)
        if self._is_spelling:
            text = "<spell>" + text
        if self._is_english and DECIDING_WORD.search(text) and is_read_as_written(words := text.strip(" ")):
            self._latest = self._language
            return words  # a sentence that is being written is read over and over
        is_open = is_growing and may_be_of_hint(text, self._language)
        if is_open:
            self._latest = self._language
        elif has_deciding_word(text):
            self._latest = detect_language(text, self._language)
        is_read_behind = base_language(self._latest) in _READ_BEHIND and self._said_language == self._latest
        if is_read_behind and not self._is_spelling and may_depend(text):
            words_behind = read_behind(self._said, text, self._read_decided)
            if words_behind is not None:
                return words_behind
        return speakable(text, self._latest, tags=self._tags, is_language_decided=is_open, before=self._said)

    def end_of(self, words: str, text: str) -> str:
        """Mark that the end of `words` lacks, which are said of `text`, where nothing more is said with them."""
        return end_of_words(words, text) if self._is_normalized else ""

    def _read_decided(self, text: str) -> str:
        """Earlier text is read over and over, before growing text."""
        if text == self._before[0] and self._before[1] == self._latest:
            return self._before[2]
        words = speakable(text, self._latest, tags=self._tags, is_language_decided=True)
        if text == self._said:
            self._before = text, self._latest, words
        return words


def _read(text: str, language: str, before: str) -> str:
    base = base_language(language)
    is_chinese = base in _CHINESE
    if base != "en" and not is_chinese:
        return _read_by_data(text, base, before)
    addressed = unescape(read_addresses(text, CHINESE if is_chinese else ENGLISH))
    if is_chinese:
        addressed = with_long_dashes_of_ranges(addressed)
    shown = read_hidden_digits(addressed, "尾号" if is_chinese else "ending in ")
    text = read_chinese_star_keys(shown) if is_chinese else read_star_keys(shown)
    text = strip_line_markup(with_operator_signs(text), are_lines_phrases=is_chinese, has_roman_items=not is_chinese)
    if is_chinese:
        return read_chinese(with_named_currencies(text, "zh"))
    region = language.lower().replace("_", "-").partition("-")[2]
    return read_english(with_named_currencies(text, "en"), is_day_first=region in _DAY_FIRST_REGIONS)


def _read_by_data(text: str, base: str, before: str) -> str:
    """In a language whose words stand in a file; one without a file keeps its digits, and the signs at them."""
    reader = reader_of(base)
    addressed = unescape(read_addresses(text, ENGLISH if reader is None else reader.address_words))
    shown = read_hidden_digits(addressed, "" if reader is None else reader.ending_words)
    plain = strip_line_markup(with_operator_signs(shown), are_lines_phrases=base in _UNBLANKED)
    if reader is None:
        return tidy(_POWERS.sub(r"\1", plain), keep_digit_marks=True, keep_signs=True).removeprefix("+ ")
    said = clean_characters(unescape_entities(before))
    is_apart = said[-1:].isspace() or text[:1].isspace()
    return reader.read(plain.lstrip(), f"{said.rstrip()} " if is_apart else said)
