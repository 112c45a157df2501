"""English abbreviations written with a full stop: how they are read, and whether a sentence may end with them. Pure."""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final


class Kind(Enum):
    CONTINUES = "continues"  # more of the sentence follows: Dr. Smith
    NAME = "name"  # an abbreviation only if written with a capital and before one: Gen. Lee, but: the next gen.
    NUMBER = "number"  # an abbreviation only before a number: No. 5, but: No. I won't.
    MAY_END = "may end"  # the sentence may be over: etc.
    LETTERS = "letters"  # over only before a word that opens sentences: U.S. They, but: U.S. Army, J. Smith


@dataclass(frozen=True, slots=True)
class Abbreviation:
    reading: str
    kind: Kind


def _table(kind: Kind, **readings: str) -> dict[str, Abbreviation]:
    return {name: Abbreviation(reading, kind) for name, reading in readings.items()}


MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEKDAY_BY_START: Final = {day[:3]: day for day in WEEKDAYS}
MONTH_BY_NAME: Final = {
    **{month.lower(): month for month in MONTHS},
    **{month[:3].lower(): month for month in MONTHS},
    "sept": "September",
}

# Keys are lower case, without the last full stop.
ABBREVIATIONS: Final[dict[str, Abbreviation]] = {
    **_table(
        Kind.CONTINUES,
        dr="doctor",
        mr="mister",
        mrs="missus",
        ms="miz",
        prof="professor",
        vs="versus",
        approx="approximately",
        dept="department",
        incl="including",
        hwy="highway",
        v="versus",
        est="established",
        sq="square",
    ),
    "e.g": Abbreviation("for example", Kind.CONTINUES),
    "i.e": Abbreviation("that is", Kind.CONTINUES),
    **_table(
        Kind.NAME,
        st="saint",
        mt="mount",
        gen="general",
        gov="governor",
        sen="senator",
        rep="representative",
        capt="captain",
        col="colonel",
        lt="lieutenant",
        sgt="sergeant",
        rev="reverend",
        hon="honorable",
    ),
    **_table(
        Kind.NUMBER,
        no="number",
        nos="numbers",
        fig="figure",
        vol="volume",
        ch="chapter",
        sec="section",
        p="page",
        pp="pages",
        max="maximum",
        rm="room",
    ),
    **{short: Abbreviation(month, Kind.NUMBER) for short, month in MONTH_BY_NAME.items() if month.lower() != short},
    **_table(
        Kind.MAY_END,
        etc="et cetera",
        jr="junior",
        sr="senior",
        inc="incorporated",
        ltd="limited",
        co="company",
        corp="corporation",
        ave="avenue",
        blvd="boulevard",
        ln="lane",
        pkwy="parkway",
        rd="road",
        al="al",
    ),
    # Units behind a number are read with it; its end is that of a sentence, or is none.
    **_table(
        Kind.MAY_END,
        ft="foot",
        lb="pound",
        lbs="pounds",
        oz="ounce",
        hr="hour",
        hrs="hours",
        min="minimum",
        mins="minutes",
        tsp="teaspoon",
        tbsp="tablespoon",
    ),
    **_table(
        Kind.MAY_END,
        ext="extension",
        apt="apartment",
        avg="average",
        mon="Monday",
        tue="Tuesday",
        tues="Tuesday",
        thu="Thursday",
        thurs="Thursday",
        fri="Friday",
        appt="appointment",
        yrs="years",
    ),
    "in": Abbreviation("in", Kind.MAY_END),  # of inches
    "a.m": Abbreviation("A M", Kind.LETTERS),
    "p.m": Abbreviation("P M", Kind.LETTERS),
    "ph.d": Abbreviation("P H D", Kind.MAY_END),
}

# In capitals only the others are something else: 5 PM EST., Denver, CO., ask HR.
_IN_CAPITALS: Final = frozenset(
    {
        *("dr", "mr", "mrs", "jr", "sr", "st", "no", "nos", "vol", "fig", "inc", "ltd", "corp", "ave", "blvd", "rd"),
        *("hwy", "dept", "apt", "ext", *MONTH_BY_NAME),
    }
)

# What only looks like one of these, or is another: Ft. Worth, but 6 ft.; Smith v. Jones, but John V. Smith.
_BY_CASE: Final[dict[str, Abbreviation | None]] = {"Ft": Abbreviation("fort", Kind.NAME), "V": None}

# As they stand behind a city, or before a postal code.
STATES: Final[dict[str, str]] = {
    "AL": "Alabama",
    "AK": "Alaska",
    "AZ": "Arizona",
    "AR": "Arkansas",
    "CA": "California",
    "CO": "Colorado",
    "CT": "Connecticut",
    "DE": "Delaware",
    "FL": "Florida",
    "GA": "Georgia",
    "HI": "Hawaii",
    "ID": "Idaho",
    "IL": "Illinois",
    "IN": "Indiana",
    "IA": "Iowa",
    "KS": "Kansas",
    "KY": "Kentucky",
    "LA": "Louisiana",
    "ME": "Maine",
    "MD": "Maryland",
    "MA": "Massachusetts",
    "MI": "Michigan",
    "MN": "Minnesota",
    "MS": "Mississippi",
    "MO": "Missouri",
    "MT": "Montana",
    "NE": "Nebraska",
    "NV": "Nevada",
    "OH": "Ohio",
    "OK": "Oklahoma",
    "OR": "Oregon",
    "PA": "Pennsylvania",
    "TN": "Tennessee",
    "TX": "Texas",
    "UT": "Utah",
    "VT": "Vermont",
    "VA": "Virginia",
    "WA": "Washington",
    "WI": "Wisconsin",
    "WY": "Wyoming",
    "NH": "New Hampshire",
    "NJ": "New Jersey",
    "NM": "New Mexico",
    "NY": "New York",
    "NC": "North Carolina",
    "ND": "North Dakota",
    "RI": "Rhode Island",
    "SC": "South Carolina",
    "SD": "South Dakota",
    "WV": "West Virginia",
    "DC": "D C",
}

# Written with a capital only at the start of a sentence, and no names.
SENTENCE_OPENERS: Final = frozenset(
    {
        *(
            "The",
            "This",
            "That",
            "These",
            "Those",
            "There",
            "Then",
            "They",
            "It",
            "Its",
            "He",
            "She",
            "His",
            "Her",
            "We",
        ),
        *(
            "You",
            "I",
            "A",
            "My",
            "Our",
            "Your",
            "Their",
            "In",
            "On",
            "At",
            "As",
            "If",
            "When",
            "While",
            "But",
            "And",
            "So",
        ),
        *("However", "Also", "For", "From", "With", "What", "Why", "How", "Where", "Who", "After", "Before", "Since"),
        *("Because", "Although", "Now", "Here", "Today", "Meanwhile", "Instead", "Still", "Yet", "Is", "Are", "Was"),
        *("Do", "Does", "Did", "Can", "Could", "Would", "Should", "Please", "Let", "Which", "Any", "Just", "Thank"),
        *("Thanks", "Have", "Has", "Had", "Unfortunately", "Otherwise", "Additionally", "Once", "Until", "Every"),
        *("Each", "Some", "Most", "See", "Feel", "Make", "Check", "Try", "Take", "Sorry", "Were", "Am", "Not", "To"),
        *("Bring", "Remember", "Call", "Visit", "By", "Both", "Either", "Though", "Whether"),
    }
)

_NEXT_WORD: Final = re.compile(r"\s*([^\s]{1,20})")
_DOTTED_LETTERS: Final = re.compile(r"[A-Za-z](?:\.[A-Za-z])+")


def opens_sentence(word: str) -> bool:
    """Of a word as written: "They," and "It's", but not "I." (an initial)."""
    stem = word.lstrip("\"'“‘([*_")
    if stem.endswith("."):
        return False
    return stem.rstrip(",:;!?…\"'”’)]*_").partition("'")[0].partition("’")[0] in SENTENCE_OPENERS


def stop_behind(match: re.Match[str]) -> str:
    """A full stop that the match took in ("p.m.") and that also ends the sentence."""
    if not match[0].endswith("."):
        return ""
    word = _NEXT_WORD.match(match.string, match.end())
    return "." if word is None or opens_sentence(word[1]) else ""


@lru_cache(maxsize=1024)
def abbreviation(word: str) -> Abbreviation | None:
    """Of a word as written, before its last full stop."""
    if word[:1].isdigit():  # a 12-oz. can
        word = word.rpartition("-")[2]
    if word in _BY_CASE:
        return _BY_CASE[word]
    name = word.lower()
    is_another = len(word) > 1 and word.isalpha() and word.isupper() and name not in _IN_CAPITALS
    return None if is_another else ABBREVIATIONS.get(name)


def abbreviation_kind(word: str) -> Kind | None:
    """Of a word before its last full stop: "Dr", "U.S", "J"; None for an ordinary word."""
    entry = abbreviation(word)
    if entry is not None:
        return None if entry.kind is Kind.NAME and not word[0].isupper() else entry.kind
    is_initial = len(word) == 1 and word.isascii() and word.isupper() and word != "I"
    return Kind.LETTERS if is_initial or _DOTTED_LETTERS.fullmatch(word) else None
