"""Entries of a language's file, `data/languages/de.yaml` and its like. docs/languages.md tells of each."""

from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct

from voicegate.engine.text.data_files import languages_with_data, read_data

Plurals = dict[str, str]  # by CLDR's plural category; "other" is always there
_Digits = Annotated[list[str], Meta(min_length=10, max_length=10)]


class _Entry(Struct, frozen=True, forbid_unknown_fields=True, rename={"as_": "as"}):
    pass


class FormEntry(_Entry, frozen=True):
    """Form of a number in front of a noun, or in a case: arguments of num2words, and endings that its words get."""

    arguments: dict[str, str] = {}
    endings: list[tuple[str, str]] = []


class NativeEntry(_Entry, frozen=True):
    tens: _Digits
    ones: _Digits
    exceptions: dict[int, str] = {}


class NumbersEntry(_Entry, frozen=True):
    decimal: str  # the word at the decimal mark
    digits: _Digits  # as codes and telephone numbers are said
    decimal_digits: list[str] = []  # behind the decimal mark, where they are others
    # How those are said: one by one; two of them as a number (trois virgule vingt-cinq); три целых пять десятых.
    decimals: Literal["digits", "pairs", "num2words"] = "digits"
    group_marks: str = ""  # beside CLDR's
    forms: dict[str, FormEntry] = {}
    ordinal_forms: dict[str, FormEntry] = {}
    ordinals: dict[int, str] = {}
    native: NativeEntry | None = None
    phone_pairs: bool = False


class FrameEntry(_Entry, frozen=True):
    """`read` is how it is written behind `before`; `as` what is said."""

    read: str
    as_: str
    before: str = ""


class AgreementEntry(_Entry, frozen=True):
    """Which form a bare number has before what matches `behind`; null: it is left to the model."""

    behind: str
    form: str | None
    numbers: str = r"\d+"
    before: str = ""
    plural: str = ""  # of a unit: the category in place of the number's own


class MoneyEntry(_Entry, frozen=True):
    with_cents: str = ""  # "{major} {minor}"; "": cents are read as decimals
    cents_alone: str = ""
    magnitude: str = "{number} {magnitude} {currency}"
    cents: dict[str, Plurals] = {}
    names: dict[str, Plurals] = {}
    forms: dict[str, str] = {}
    signs: dict[str, str] = {}  # as it writes them, beside CLDR's: "руб." -> RUB


class MagnitudeEntry(_Entry, frozen=True):
    names: Plurals
    form: str = ""


class UnitsEntry(_Entry, frozen=True):
    alone: str = "one"  # CLDR's category of a unit behind a fraction: "tres cuartos de litro"
    of_fraction: str = "{fraction} {unit}"
    signs: dict[str, str] = {}  # as it writes them, beside CLDR's -> CLDR's name, or one of `names`
    names: dict[str, Plurals] = {}  # "{0} Esslöffel"; before CLDR's
    forms: dict[str, str] = {}
    cases: list[AgreementEntry] = []  # forms in place of these


class LanguageEntry(_Entry, frozen=True):
    numbers: NumbersEntry
    signs: dict[str, str]
    minus: str
    range: str
    per: str  # of a price: "{amount} pro {unit}"
    fractions: dict[str, str]
    fraction: str  # of others: "{top} durch {bottom}"
    codes: str  # what names a code, or a telephone, that is said digit by digit
    blanks: Literal["around", "before", "none"] = "around"  # the words of a number
    times: str = "x"  # letters that are read as × between numbers
    address: dict[str, str] = {}
    ending: str = ""  # what is said before the last digits of a number that is hidden with stars
    is_phone: str = ""
    days: str = ""  # a range of weekdays, where `range` does not stand between them: "{first}-{last}"
    dotted: str = ""  # between the parts of versions and addresses of networks: "Punkt"
    replaced: list[tuple[str, str]] = []
    abbreviations: dict[str, str] = {}
    ending_abbreviations: list[str] = []
    openers: str = ""
    words: str = ""  # by which the language is known among others of its script
    links: str = ""
    has_ordinal_stops: bool = False  # 3. Mai
    rulers: str = ""
    macros: dict[str, str] = {}
    frames: list[FrameEntry] = []
    agreement: list[AgreementEntry] = []
    money: MoneyEntry = MoneyEntry()
    magnitudes: dict[str, MagnitudeEntry] = {}
    units: UnitsEntry = UnitsEntry()
    repairs: list[tuple[str, str]] = []


class InternationalSigns(_Entry, frozen=True):
    """Signs of every language: sign -> CLDR's name of a unit, code of a currency."""

    units: dict[str, str]
    currencies: dict[str, str]


@lru_cache(maxsize=1)
def known_languages() -> frozenset[str]:
    """Languages with a file."""
    return languages_with_data()


@lru_cache
def load(language: str) -> LanguageEntry:
    """Raises LanguageError."""
    return read_data(f"languages/{language}", LanguageEntry)


def common_words(language: str) -> frozenset[str]:
    """By which it is known among others of its script; none, where it has no file."""
    return frozenset(load(language).words.split()) if language in known_languages() else frozenset()


@lru_cache(maxsize=1)
def international_signs() -> InternationalSigns:
    """Raises LanguageError."""
    return read_data("international", InternationalSigns)
