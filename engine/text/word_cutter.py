"""Where a word ends that the LLM may have at once (bistream). Pure; words that are read together stay together.

Whitespace goes with the word behind it, as byte-level BPE has it.
"""

import re
from typing import Final

from voicegate.engine.text.characters import (
    RUN_END,
    WIDE_CLAUSE_MARKS,
    WIDE_LIST_MARK,
    WIDE_TRAILERS,
    inner_cut,
    is_wide,
    split_tail,
)
from voicegate.engine.text.chinese.measures import CODE_WORD_START
from voicegate.engine.text.cleanup import CURRENCY_SIGNS
from voicegate.engine.text.english import word_pairs
from voicegate.engine.text.english.abbreviations import Kind
from voicegate.engine.text.open_markup import is_in_tag, markup_ranges, open_markup_start
from voicegate.engine.text.spoken_length import written_letters
from voicegate.engine.text.word_endings import Ending, word_ending
from voicegate.engine.text.word_rules import ENGLISH, WordRules

# Wide text has no blanks: it leaves in groups of this many. Lower -> BPE tokens of two or three characters are torn;
# higher -> the LLM waits longer for its first words.
WIDE_GROUP_CHARS: Final = 6
# Wide characters behind a number that decide how it is read: 2小时 is 两小时, 2小 is not.
_DECIDING_CHARS: Final = 3

_WIDE_MARKS: Final = WIDE_TRAILERS | frozenset(WIDE_CLAUSE_MARKS + WIDE_LIST_MARK)
# Between blanks behind a number, and a sign before one: 12 - 5, 5 €, $ 5.
_BEHIND_NUMBERS: Final = frozenset("-–−*×÷+=<>≤≥≠≈±%‰°$x" + CURRENCY_SIGNS)
_BEFORE_NUMBERS: Final = frozenset("-–−±≈~#№§√$" + CURRENCY_SIGNS)
# Marks behind a plain word that nothing behind them takes the place of, nor makes part of a word: "example.com".
_ENDING_MARKS: Final = frozenset(",;?")
_PLAIN_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u024f]+(?:['’-][A-Za-z\u00c0-\u024f]+)*")
# Between blanks, in small letters: where one ends the cutter, which is at its beginning there, has a cut.
_PLAIN_WORDS: Final = re.compile(r"(?: (?!the )[a-z]+(?= ))+")
_NEVER_FULL: Final = 1_000_000_000  # letters
# A day of a month, which reads as one where its month follows: 1st Jan., 5 of May.
_ORDINAL: Final = re.compile(r"\d+(?:st|nd|rd|th)")
_OF: Final = "of"
_THE: Final = frozenset({"the", "The"})  # 5th of May, which is read with one of its own
_INNER_NUMBER_MARKS: Final = (".", ",", ":")
_SCHEMES: Final = frozenset({"http", "https"})
_PAIRS_WITH_COLONS: Final = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){1,4}:\Z")  # 00:1A:2B:
_STOP_BEFORE_NUMBER: Final = re.compile(r"[$€£¥₹₩(\"'*-]*\.")
_WHOLE_PRICE: Final = re.compile(r"[$€£]\d[\d,]*\.\d\d[.!?]")
_MAY_NAME_CODE: Final = re.compile(rf"{CODE_WORD_START}\Z")


class WordCutter:
    def __init__(
        self, *, max_letters: int, wide_group_chars: int = WIDE_GROUP_CHARS, rules: WordRules = ENGLISH
    ) -> None:
        self._rules = rules
        self._max_letters = max_letters
        self._wide_group_chars = wide_group_chars
        self._begin_span()

    def _begin_span(self) -> None:
        self._pos = 0  # the next character to look at
        self._num_letters = 0  # that those before it are said with
        self._word_start: int | None = None
        self._num_wide = 0  # in the present word
        self._num_behind_digit = _DECIDING_CHARS  # wide characters since its last digit, where there is one
        self._held = ""  # the last word, if the next one may belong to it
        self._held_end = 0

    def next_cut(self, text: str) -> int | None:
        """Length of the first span of `text`, None while undecided. `text` only grows until it is cut."""
        while (is_full := self._num_letters >= self._max_letters) or self._pos < len(text):
            cut = self._forced_cut(text) if is_full else self._step(text)
            if cut is not None:
                self._begin_span()
                return cut
            if is_full:
                return None
        return None

    def restart(self, text: str) -> None:
        """All of `text` leaves now, whatever was undecided about it."""
        self._begin_span()

    def _step(self, text: str) -> int | None:
        char = text[self._pos]
        is_letter = is_wide(char)
        if char.isspace() or (is_letter and self._parts_from(text)):
            cut = self._end_word(text)
            if cut is not None:
                return cut
        if char.isspace():
            self._consume(char)
            return self._held_end if char == "\n" and self._held else None  # the next line is another's
        if self._word_start is None:
            self._word_start = self._pos
        self._num_wide += is_letter
        self._num_behind_digit += is_letter
        limit = min(len(text), self._pos + self._max_letters)
        run_end = RUN_END.search(text, self._pos + 1, limit)
        end = run_end.start() if run_end else limit
        while self._pos < end and self._num_letters < self._max_letters:
            self._consume(text[self._pos])
            if text[self._pos - 1] in _ENDING_MARKS and _PLAIN_WORD.fullmatch(text, self._word_start, self._pos - 1):
                return self._end_word(text)
        if self._held and not _may_belong(self._held, text[self._word_start : self._pos], self._rules):
            return self._held_end
        return None

    def _consume(self, char: str) -> None:
        self._pos += 1
        self._num_letters += written_letters(char)
        if char.isdigit():
            self._num_behind_digit = 0

    def _forced_cut(self, text: str) -> int | None:
        if self._held_end:
            return self._held_end
        if self._pos == len(text):  # what comes next may be a mark on the last letter
            return None
        return inner_cut(text, self._pos) or self._pos

    def _parts_from(self, text: str) -> bool:
        """Whether the wide letter at `_pos` starts a new word."""
        if self._word_start is None:
            return False
        before = text[self._pos - 1]
        if before in _WIDE_MARKS:
            return True
        is_group = is_wide(before) and self._num_wide >= self._wide_group_chars
        is_decided = self._num_behind_digit >= _DECIDING_CHARS
        return is_group and is_decided and _MAY_NAME_CODE.search(text, self._word_start, self._pos) is None

    def _end_word(self, text: str) -> int | None:
        if self._word_start is None:
            return None
        word = text[self._word_start : self._pos]
        if is_in_tag(text[self._word_start : self._pos + 1]):
            return None
        if self._held and not _belongs(self._held, word, self._rules):
            return self._held_end
        is_link = word in _BEHIND_NUMBERS or word in self._rules.links
        is_link = is_link or word.removesuffix(".") in self._rules.firsts_of_units
        goes_on = bool(self._held) and is_link
        if not goes_on and not _may_be_continued(word, self._rules):
            return self._pos
        self._held, self._held_end = word, self._pos
        self._word_start = None
        self._num_wide = 0
        self._num_behind_digit = _DECIDING_CHARS
        return None


def finished_length(text: str, *, wide_group_chars: int = WIDE_GROUP_CHARS, rules: WordRules = ENGLISH) -> int:
    """Length of the longest start of `text` that ends with a word which nothing that follows can change."""
    text = text[: open_markup_start(text)]
    cutter, length = WordCutter(max_letters=_NEVER_FULL, wide_group_chars=wide_group_chars, rules=rules), 0
    while (cut := cutter.next_cut(text[length:])) is not None:
        length += cut
        if plain := _PLAIN_WORDS.match(text, length):
            length = plain.end()
    words = text[length:].split()
    if len(words) == 1 and _is_ended_by_mark(words[0], rules):
        return len(text)
    # Half a formula or link is none, though its end is there: a blank is yet to come behind it.
    return next((start for start, end in markup_ranges(text) if start < length < end), length)


def _is_ended_by_mark(word: str, rules: WordRules) -> bool:
    """Whether a word is whole though no blank has come behind it. A dot behind a digit may be a decimal point."""
    if _is_ended_by_wide_mark(word) or _WHOLE_PRICE.fullmatch(word):
        return True
    stem, tail = split_tail(word)
    is_address = "@" in stem or "://" in word or stem.startswith("www.") or _PAIRS_WITH_COLONS.search(word)
    if (stem[-1:].isdigit() and tail.startswith(_INNER_NUMBER_MARKS)) or stem in _SCHEMES or is_address:
        return False
    if not stem and _STOP_BEFORE_NUMBER.fullmatch(tail):
        return False
    return word_ending(word, rules) is not Ending.NONE and not _may_be_continued(word, rules)


def _is_ended_by_wide_mark(word: str) -> bool:
    return word[-1] in _WIDE_MARKS and not word[-1].isascii()


def _may_be_continued(word: str, rules: WordRules) -> bool:
    """Whether the next word may decide how this one is read: 3:30 | pm, $5 | million, May | 5, Dr. | Smith."""
    if word in _THE or word in _BEFORE_NUMBERS or word in rules.before_number:
        return True
    if rules.is_english and word_pairs.may_be_continued(word):
        return True
    stem, tail = split_tail(word)
    ending = word_ending(word, rules)
    if tail.startswith("."):
        is_abbreviation = rules.kind(stem) is not None
        return is_abbreviation and ending not in (Ending.SENTENCE, Ending.CLAUSE)
    if ending is not Ending.NONE or not stem or _is_ended_by_wide_mark(word):
        return False
    return rules.is_number(stem) or _ORDINAL.fullmatch(stem) is not None or rules.is_month(stem)


def _may_belong(held: str, start: str, rules: WordRules) -> bool:
    """Whether some word with this start may be read together with the word before it."""
    held_stem, held_tail = split_tail(held)
    first = next((char for char in start if char.isalnum()), "")
    if not first or first.isdigit():
        return True
    if rules.is_english and (may_belong := word_pairs.may_belong(held, start)) is not None:
        return may_belong
    if held_tail.startswith("."):
        may_be_code = start.isupper() and start != "I"
        return rules.kind(held_stem) is not Kind.NUMBER or may_be_code or _OF.startswith(start)
    stem, tail = split_tail(start)
    is_month = rules.may_be_month(start, stem)
    unit = start.removesuffix(tail)
    is_unit = any(word.startswith(unit) for word in rules.after_number)
    if held in rules.links:
        return is_month or (is_unit and held != _OF)
    may_be_link = any(link.startswith(start) for link in rules.links)
    if _ORDINAL.fullmatch(held_stem):
        return is_month or may_be_link
    if not rules.is_number(held_stem):
        return may_be_link and rules.is_month(held_stem) and not _OF.startswith(start)
    is_sign = start in _BEHIND_NUMBERS
    return is_month or is_unit or is_sign or may_be_link or is_wide(start[0]) or rules.is_taken(start)


def _belongs(held: str, word: str, rules: WordRules) -> bool:
    """Whether `word` is read together with the word before it, which may be continued."""
    stem, tail = split_tail(word)
    starts_with_digit = stem[:1].isdigit()
    held_stem, held_tail = split_tail(held)
    if rules.is_english and (belongs := word_pairs.belongs(held, word)) is not None:
        return belongs
    if held_tail.startswith("."):
        match rules.kind(held_stem):
            case Kind.NUMBER:
                return word == _OF or rules.is_number_or_code(stem)
            case Kind.LETTERS:
                return not rules.opens_sentence(word)
            case _:
                return True
    if held in rules.links:  # behind a day
        is_of_amount = starts_with_digit or word.removesuffix(tail) in rules.after_number or word in _BEHIND_NUMBERS
        return rules.is_month(stem) or (is_of_amount and held != _OF)
    if _ORDINAL.fullmatch(held_stem):
        return rules.is_month(stem) or word in rules.links
    if rules.is_number(held_stem):
        return (
            starts_with_digit
            or rules.is_month(stem)
            or word.removesuffix(tail) in rules.after_number
            or word in _BEHIND_NUMBERS
            or word in rules.links
            or word.removesuffix(".") in rules.firsts_of_units
            or is_wide(word[0])
            or rules.is_taken(word)
        )
    return starts_with_digit or (word in rules.links and rules.is_month(held_stem) and word != _OF)
