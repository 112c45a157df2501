"""One language beside English and Chinese: cleaned text -> words and marks, by its file in `data/`. Pure.

Numbers are found from left to right; of the frames the first one that matches and has words counts. What none of them
can say keeps its digits for the model. Nothing is looked for where there is neither a digit nor a sign.
"""

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from voicegate.engine.interface import base_language
from voicegate.engine.text.languages.amounts import Amounts
from voicegate.engine.text.languages.converters import Converters
from voicegate.engine.text.languages.definition import AgreementEntry, FrameEntry, LanguageEntry, known_languages, load
from voicegate.engine.text.languages.rules import (
    MAX_BEFORE_CHARS,
    NO_WORD_BEFORE,
    NO_WORD_BEHIND,
    Rule,
    Said,
    first,
    is_behind,
)
from voicegate.engine.text.languages.signs import SIGNS, Signs
from voicegate.engine.text.languages.templates import Template
from voicegate.engine.text.patterns import any_of
from voicegate.engine.text.punctuation import tidy
from voicegate.engine.text.web import AddressWords


def abbreviations_of(entry: LanguageEntry, units: Collection[str], currencies: Collection[str]) -> Callable[[str], str]:
    """Readings of abbreviations, but for units behind a number (45 min.) and signs of money before one (Fr. 20)."""
    said = {name.replace(" ", ""): words for name, words in entry.abbreviations.items()}
    capital = {
        name[0].upper() + name[1:]: words[0].upper() + words[1:] for name, words in said.items() if name[0].islower()
    }
    said = capital | said
    if not said:
        return lambda text: text
    # Not within a word, nor behind a letter with a stop: U.S.A. has no S.
    pattern = re.compile(
        rf"(?<![^\W\d_])(?<!\b[^\W\d_]\.)(?:{'|'.join(map(_written, sorted(said, key=len, reverse=True)))})"
    )
    ending = {name.replace(" ", "") for name in entry.ending_abbreviations}

    def spoken(match: re.Match[str]) -> str:
        name = match[0].replace(" ", "")
        is_unit = name.removesuffix(".") in units or name in units
        if is_unit and match.string[: match.start()].rstrip(" ")[-1:].isdecimal():
            return match[0]
        if name in currencies and match.string[match.end() :].lstrip(" ")[:1].isdecimal():
            return match[0]
        is_end = name.endswith(".") and name in ending and not match.string[match.end() :].strip()
        runs_on = match.string[match.end() : match.end() + 1].isalnum()
        return said[name] + ("." if is_end else " " if runs_on else "")

    return lambda text: pattern.sub(spoken, text)


def _written(name: str) -> str:
    """A pattern of it, with or without blanks behind its stops."""
    pattern = re.escape(name).replace(r"\.", r"\. ?").removesuffix(" ?")
    return pattern if name.endswith(".") else pattern + NO_WORD_BEHIND


_MACROS: Final = {
    "day": r"(?:0?[1-9]|[12]\d|3[01])(?!\d)",
    "mon": r"(?:0?[1-9]|1[0-2])(?!\d)",
    "year": r"(?:1\d{3}|20\d\d|21\d\d)(?![\d.,]\d|\d)",
    "hour": r"(?:[01]?\d|2[0-4])(?!\d)",
    "min": r"[0-5]\d(?!\d)",
    "digits": r"\d+",
    "roman": r"[IVX]+",
}
_MACRO: Final = re.compile(r"\{(?:([a-z]\w*):)?([a-z]\w*)\}")
_GROUP_NAME: Final = re.compile(r"\(\?P<\w+>")
_ROMAN: Final = re.compile("[IVX]+")
_CODE: Final = re.compile(r"\d{3,}(?:[ -]\d{2,})*(?![\d.,]\d)")
# With the prefix of a country, or a zero before its first group.
_PHONE: Final = (
    r"(?:\+ ?\d{1,3}|00\d{2}|\(?0\d{1,5}\)?)(?:[ /()-]{1,2}\d{1,12}){1,6}(?![\d.,]\d)"
    r"|\+\d{7,15}(?!\d)|0\d{7,14}(?!\d)"
)
_IBAN: Final = re.compile(r"(?<=[A-Z]{2})(?<![A-Za-z][A-Z]{2})\d{2}(?: ?\d{4}){2,7}(?: ?\d{1,3})?(?!\d)")
_SERIAL: Final = re.compile(r"\d{5,}(?![\d.,]\d|\d)")  # RA123456789RU
_DOTTED: Final = re.compile(r"\d+(?:\.\d+){2,}")

_REPLACED: Final = (
    (re.compile(r"(?<=\d)\*(?=\d)"), "×"),
    (re.compile(r"(?<=\d)( ?[kMG])bps(?![A-Za-z])"), r"\1bit/s"),
)


class _Frame(NamedTuple):
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None
    template: Template


@lru_cache
def reader_of(language: str) -> "Reader | None":
    """None: the language has no file. The first call of each takes some tenths of a second."""
    return Reader(language) if language in known_languages() else None


def prepare(languages: Iterable[str]) -> None:
    """Makes their readers now, before anybody waits for them."""
    for language in languages:
        reader_of(base_language(language))


class Reader:
    def __init__(self, language: str) -> None:
        """Raises LanguageError."""
        self._entry = entry = load(language)
        self._converters = converters = Converters(language, entry)
        self.address_words = AddressWords(**entry.address)
        self.ending_words = entry.ending
        measures, number = converters.measures, converters.written.number
        self._macros = {
            **_MACROS,
            "int": converters.written.integer,
            "num": number,
            "month": rf"(?:{any_of(measures.months)}){NO_WORD_BEHIND}\.?",
            "rulers": entry.rulers or "(?!)",
            **entry.macros,
        }
        self._number = re.compile(number)
        self._frames = tuple(map(self._frame, entry.frames))
        # Most numbers are of no frame: one search tells.
        sources = (_GROUP_NAME.sub("(?:", frame.pattern.pattern) for frame in self._frames)
        self._any_frame = re.compile("|".join(f"(?:{source})" for source in sources) or "(?!)")
        self._agreement = tuple(map(self._rule, entry.agreement))
        self._amounts = Amounts(entry, converters, tuple(map(self._rule, entry.units.cases)))
        self._signs = Signs(entry, converters)
        self._abbreviations = abbreviations_of(entry, measures.units, measures.currencies)
        self._weekdays = (
            self._weekday_names(entry.days or f"{{first}} {entry.range} {{last}}") if entry.blanks == "around" else None
        )
        self._replaced = _REPLACED + tuple((re.compile(pattern), words) for pattern, words in entry.replaced)
        self._repairs = tuple((re.compile(pattern), words) for pattern, words in entry.repairs)
        self._code_before = self._ending(rf"(?:{entry.codes})[\s:]*" if entry.codes else "(?!)")
        self._phone = re.compile(f"{_PHONE}|{entry.is_phone}" if entry.is_phone else _PHONE)
        self._times = re.compile(rf" ?[{entry.times}] ?(?=\d)")
        letters = any_of(sign for sign in measures.currencies if sign[0].isalpha())
        self._candidate = re.compile(
            rf"\d|[{re.escape(SIGNS)}]|{any_of(self._signs.currencies)}|{NO_WORD_BEFORE}(?:{letters})(?= ?\d)"
            rf"|{NO_WORD_BEFORE}[IVX]+(?=\w{{0,3}}{NO_WORD_BEHIND})|(?<=\d) ?[{entry.times}](?= ?\d)"
        )

    def read(self, text: str, before: str = "") -> str:
        """`before`: what was said already, of which MAX_BEFORE_CHARS are enough."""
        for pattern, words in self._replaced:
            text = pattern.sub(words, text)
        if self._weekdays is not None:
            text = self._weekdays(text)
        before = before[-MAX_BEFORE_CHARS:]
        said = self._scan(before + self._abbreviations(text), len(before))
        for pattern, words in self._repairs:
            said = pattern.sub(words, said)
        words = tidy(said, keep_digit_marks=True)
        # Some stand apart only now.
        return tidy(self._abbreviations(words), keep_digit_marks=True) if "." in words else words

    # --- from left to right -----------------------------------------------------------------------------------

    def _scan(self, text: str, start: int) -> str:
        parts: list[str] = []
        at = start
        while (found := self._candidate.search(text, at)) is not None:
            place = found.start()
            parts.append(text[at:place])
            said = self._say(text, place, start)
            if said is None:
                at = self._end_of_unsaid(text, place)
                parts.append(text[place:at])
                continue
            parts.append(self._apart(said, text, place, parts))
            at = said.end
        parts.append(text[at:])
        return "".join(parts)

    def _apart(self, said: Said, text: str, place: int, parts: list[str]) -> str:
        """With blanks where the words would run into others."""
        words, end = said
        if text[end - 1] == "." and words and not text[end:].strip():  # of a unit, and of the sentence
            words += "."
        if self._entry.blanks == "none" or not words:
            return words
        before = next((part[-1] for part in reversed(parts) if part), text[place - 1 : place])
        gap = " " if before.isalnum() and words[0].isalnum() else ""
        runs_on = self._entry.blanks == "around" and text[end : end + 1].isalnum() and words[-1].isalnum()
        return gap + words + (" " if runs_on else "")

    def _end_of_unsaid(self, text: str, place: int) -> int:
        left = self._number.match(text, place) or _ROMAN.match(text, place)
        return place + 1 if left is None else left.end()

    def _say(self, text: str, place: int, start: int) -> Said | None:
        for pattern, before, template in self._frames if self._any_frame.match(text, place) else ():
            if (match := pattern.match(text, place)) is not None and is_behind(before, text, place):
                words = template.fill(match)
                if words is not None:
                    return Said(words, match.end())
        if text[place].isdecimal():
            return self._numeral(text, place, is_in_word=place > start and self._signs.is_of_word(text[place - 1]))
        if text[place].isalpha() or text[place] == " ":
            return self._amounts.before_number(text, place) or self._between_numbers(text, place)
        return self._phone_at(text, place) or self._amounts.before_number(text, place) or self._signs.say(text, place)

    def _numeral(self, text: str, place: int, *, is_in_word: bool) -> Said | None:
        if is_in_word and (serial := _SERIAL.match(text, place)) is not None:
            return Said(self._converters.code(serial[0]), serial.end())
        if (code := _CODE.match(text, place)) is not None and is_behind(self._code_before, text, place):
            return Said(self._converters.code(code[0]), code.end())
        if is_in_word and (iban := _IBAN.match(text, place)):
            return Said(self._converters.code(iban[0]), iban.end())
        said = (
            (None if is_in_word else self._phone_at(text, place))
            or self._amounts.behind_number(text, place)
            or self._dotted_at(text, place)
            or self._amounts.fraction(text, place)
        )
        if said is not None:
            return said
        plain = self._plain(text, place)
        return plain if plain is None or is_in_word else self._amounts.with_rate(text, plain)

    def _phone_at(self, text: str, place: int) -> Said | None:
        phone = self._phone.match(text, place)
        return None if phone is None else Said(self._converters.phone(phone[0]), phone.end())

    def _dotted_at(self, text: str, place: int) -> Said | None:
        """A version, or an address of a network."""
        dotted = _DOTTED.match(text, place)
        if dotted is None or self._number.fullmatch(dotted[0]):
            return None
        parts = (self._converters.say(part, "", "") for part in dotted[0].split("."))
        return Said(self._converters.glued(f" {self._entry.dotted} ").join(parts), dotted.end())

    def _plain(self, text: str, place: int) -> Said | None:
        number = self._number.match(text, place)
        assert number is not None, "a digit begins a number"
        rule = first(self._agreement, text, number)
        form = "" if rule is None else rule.form
        words = None if form is None else self._converters.number(number[0], form)
        return None if words is None else Said(words, number.end())

    def _between_numbers(self, text: str, place: int) -> Said | None:
        """6 x 7."""
        times = self._times.match(text, place)
        if times is None or not text[place - 1 : place].isdecimal():
            return None
        return Said(self._converters.glued(f" {self._entry.signs['×']} "), times.end())

    # --- what is made of the file ------------------------------------------------------------------------------

    def _frame(self, entry: FrameEntry) -> _Frame:
        pattern = re.compile(self._expanded(entry.read))
        before = self._ending(entry.before) if entry.before else None
        return _Frame(pattern, before, Template(entry.as_, list(pattern.groupindex), self._converters.by_name))

    def _rule(self, entry: AgreementEntry) -> Rule:
        before = self._ending(entry.before) if entry.before else None
        behind = re.compile(self._expanded(entry.behind))
        return Rule(behind, re.compile(entry.numbers), before, entry.form, entry.plural)

    def _ending(self, source: str) -> re.Pattern[str]:
        return re.compile(rf"(?:{self._expanded(source)})\Z")

    def _weekday_names(self, range_said: str) -> Callable[[str], str]:
        """Mo-Fr -> Montag bis Freitag; a day alone where a time or a date tells that it is one: Sa 9 Uhr."""
        names = {name.lower(): wide for name, wide in self._converters.measures.weekdays.items()}
        day = f"(?i:{any_of(names)})"
        links, time = any_of(self._entry.links.split()), r"\d{1,2}(?:[:.h]\d\d)?"
        ranges = re.compile(rf"{NO_WORD_BEFORE}({day})\.? ?- ?({day}){NO_WORD_BEHIND}\.?")
        linked = re.compile(rf"{NO_WORD_BEFORE}({day})\. ({links}) ({day}){NO_WORD_BEHIND}\.?")
        dated = self._expanded(rf" \d{{1,2}}[:h]\d\d| {time}(?: ?- ?{time})? ?(?:Uhr|ч)\b|,? {{day}}\.? ?{{month}}")
        # "Fr. 20" is money.
        money = any_of(sign for sign in self._converters.measures.currencies if sign.endswith("."))
        alone = re.compile(rf"{NO_WORD_BEFORE}(?!(?:{money}) \d)({day})(?:\.(?=,| \d)|\.?(?={dated}))")

        def said(text: str) -> str:
            text = ranges.sub(
                lambda match: range_said.format(first=names[match[1].lower()], last=names[match[2].lower()]), text
            )
            text = linked.sub(lambda match: f"{names[match[1].lower()]} {match[2]} {names[match[3].lower()]}", text)
            return alone.sub(lambda match: names[match[1].lower()], text)

        return said

    def _expanded(self, source: str) -> str:
        """ "{d:day}" is a group that is named d, "{day}" one without a name."""
        return _MACRO.sub(lambda macro: f"({f'?P<{macro[1]}>' if macro[1] else '?:'}{self._macros[macro[2]]})", source)
