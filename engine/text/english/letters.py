"""Abbreviations, initials and words in capitals -> English words and letters. Pure.

Takes tidied text without digits (`punctuation.tidy`, inner stops kept); what it returns holds nothing it would change.
"""

import re
from typing import Final

from voicegate.engine.text.english import numbers
from voicegate.engine.text.english.abbreviations import (
    ABBREVIATIONS,
    MONTHS,
    STATES,
    WEEKDAY_BY_START,
    Kind,
    abbreviation,
    opens_sentence,
)
from voicegate.engine.text.english.data import DATA
from voicegate.engine.text.english.streets import STREETS, street_name, without_stop
from voicegate.engine.text.patterns import any_of, roman_value

_VOWELS: Final = frozenset("AEIOUY")
_MAX_SPELLED_LETTERS: Final = 5  # longer words in capitals are shouted, not spelled
_ONSETS: Final = re.compile(
    "BL|BR|CH|CL|CR|DR|DW|FL|FR|GH|GL|GN|GR|KN|PH|PL|PR|QU|RH|SC|SCH|SCR|SH|SHR|SK|SL|SM|SN|SP|SPL|SPR|SQU|ST"
    "|STR|SW|TH|THR|TR|TW|WH|WR"
)
_CODAS: Final = re.compile(
    "BS|CH|CK|CKS|CT|DD|DS|FF|FT|GG|GH|GHT|GN|GS|KS|LD|LDS|LF|LK|LL|LLS|LM|LP|LS|LT|MB|MN|MP|MPS|MS|NCH|ND|NDS"
    "|NG|NGS|NK|NKS|NN|NS|NT|NTS|PS|PT|RB|RC|RCH|RD|RDS|RF|RG|RK|RKS|RL|RM|RMS|RN|RNS|RP|RS|RST|RT|RTS|RTH|SH"
    "|SK|SP|SS|ST|STS|TCH|TH|THS|TS|TT|WD|WK|WL|WLS|WN|WNS|WS|XT|ZZ"
)
# Look like words, but are spelled.
_SPELLED: Final = frozenset(DATA["words"]["spelled"])
_ROMANS: Final = ("II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV", "XVI")
_READ: Final[dict[str, str]] = {
    **DATA["capitals"],
    **{roman: numbers.say_integer(str(roman_value(roman))) for roman in _ROMANS if len(roman) > 1},
}
# Behind these a Roman number is "the second".
RULERS: Final = any_of(DATA["words"]["rulers"])
_NUMBERED: Final = re.compile(rf"\b({any_of(DATA['words']['numbered_in_roman'])}) ([IVX]|[IVXLC]{{2,7}})\b(?!['.-]\w)")
# Into veins, and no number: "an IV drip", "the IV line".
_DRIP: Final = re.compile(
    r"(?<=\b[Aa]n )IV\b|\bIV(?= (?:drip|fluid|line|bag|pole|pump|push|access|catheter|needle|therapy|treatment|infusion"
    r"|antibiotic|medication|site)s?\b)"
)
# "I" is nearly always whoever speaks.
REGNAL: Final = {roman: numbers.say_ordinal(str(roman_value(roman))) for roman in (*_ROMANS, "XVIII")}
# Behind a comma these are, as often, something else.
_OTHER_THAN_STATES: Final = frozenset({"OK", "HI", "OH", "ME", "MA", "PA", "ID", "LA", "AR", "CT", "MD", "MS"})
# ... and these, where no mark stands behind them: an email, OR call us.
_WORDS_TOO: Final = frozenset({"OR", "IN"})
STATE_CODE: Final = (
    rf"({any_of(set(STATES) - _OTHER_THAN_STATES - _WORDS_TOO)}|(?:{any_of(_WORDS_TOO)})(?=[.,;!?]))"
    r"\b(?!['-]|\.\w)"
)

_ABBREVIATION: Final = re.compile(rf"(?<![\w.'-])({any_of(ABBREVIATIONS)})\.(?![\w'-])", re.IGNORECASE)
_DOTTED: Final = re.compile(r"(?<![\w.'-])([A-Za-z](?:\.[A-Za-z])+|[Pp]h\.[Dd])(\.?)(?![\w'-])")
_WITHOUT_STOP: Final = re.compile(rf"\b(Mr|Mrs|Ms|Prof|vs|PhD|{any_of(STREETS)})\b(?![.'-])")
_INITIAL: Final = re.compile(r"(?<!\b[A-Z] )\b([A-HJ-Z])\.(?= [A-Z])")
_INNER_STOP: Final = re.compile(r"(?<=\w)\.(?=\w)")
_NEXT_WORD: Final = re.compile(r" ([^\s]{1,20})(?!\S)")
_RULER: Final = re.compile(rf"\b({RULERS}) ({'|'.join(REGNAL)})\b(?!')(?!(?<=\b[VX])\.)")
# Those that are words, too, only before a month or another day.
_WEEKDAY: Final = re.compile(
    r"(?<![\w.'-])(?:(?:Tues?|Thu(?:rs?)?|Fri)\b"
    rf"|(?:Mon|Wed|Sat|Sun)(?=,? (?:{any_of(MONTHS)})\b|,? (?:and |or )?(?:{any_of(WEEKDAY_BY_START)})))"
    r"\b(?!['.-])"
)
_STATE: Final = re.compile(rf"(?<=[a-z], ){STATE_CODE}")
_IT: Final = re.compile(r"(?<![A-Z]{2} )\bIT\b(?! [A-Z]{2})")
_CAPITALS_HYPHEN: Final = re.compile(r"(?<=[A-Z]{2})-(?=\w)|(?<=\w)-(?=[A-Z]{2})")
_CAPITALS_APOSTROPHE: Final = re.compile(r"\b[A-Z]+(?:'[A-Z]+)+\b")
_CAPITALS: Final = re.compile(r"\b([A-Z]{2,})('?s)?\b")


def read_letters(text: str) -> str:
    # Each step may look for what the ones before it leave: a blank, a capital, a single letter.
    text = _CAPITALS_HYPHEN.sub(" ", _STATE.sub(lambda match: STATES[match[1]], text))
    text = _NUMBERED.sub(_numbered, text)
    text = _RULER.sub(lambda match: f"{match[1]} the {REGNAL[match[2]]}", text)
    text = _INNER_STOP.sub(_inner_stop, _DOTTED.sub(_dotted, text))
    text = _INITIAL.sub(_initial, text)
    text = _ABBREVIATION.sub(_abbreviation, text)
    text = _WITHOUT_STOP.sub(_title, text)
    text = _WEEKDAY.sub(lambda match: WEEKDAY_BY_START[match[0][:3]], text)
    text = _IT.sub("I T", text)
    if "IV" in text:
        text = _DRIP.sub("I V", text)
    text = _CAPITALS_APOSTROPHE.sub(lambda match: match[0].capitalize(), text)
    return _CAPITALS.sub(_capitals, text)


def _numbered(match: re.Match[str]) -> str:
    value = roman_value(match[2])
    return match[0] if value is None else f"{match[1]} {numbers.say_integer(str(value))}"


def _behind(match: re.Match[str]) -> str:
    """The first character of the next word; "" at the end."""
    return match.string[match.end() : match.end() + 2].lstrip()[:1]


def _opens_sentence_behind(match: re.Match[str]) -> bool:
    word = _NEXT_WORD.match(match.string, match.end())
    return word is not None and opens_sentence(word[1])


def _dotted(match: re.Match[str]) -> str:
    entry = ABBREVIATIONS.get(match[1].lower())
    reading = entry.reading if entry else match[1].replace(".", " ")
    behind = _behind(match)
    may_end = entry is not None and entry.kind is Kind.MAY_END
    is_end = not behind or (behind.isupper() if may_end else entry is None and _opens_sentence_behind(match))
    return reading + ("." if match[2] and is_end else "")


def _initial(match: re.Match[str]) -> str:
    return match[0] if _opens_sentence_behind(match) else match[1]


def _abbreviation(match: re.Match[str]) -> str:
    entry = abbreviation(match[1])
    if entry is None:
        return match[0]
    behind = _behind(match)
    stop = "" if behind else "."
    match entry.kind:
        case Kind.CONTINUES if match[1] == "Dr" and (street := street_name(match)) is not None:
            return street + ("." if _opens_sentence_behind(match) else stop)
        case Kind.CONTINUES:
            return entry.reading + stop
        case Kind.MAY_END:
            return entry.reading + ("." if behind.isupper() else stop)
        case Kind.NUMBER if match[1][0].isupper() and entry.reading[0].isupper():  # a month without a day
            return entry.reading + ("." if behind.isupper() else stop)
        case Kind.NAME if match[1] == "St" and (street := street_name(match)) is not None:
            return street + ("." if _opens_sentence_behind(match) else stop)
        case Kind.NAME if match[1][0].isupper() and behind.isupper():
            return entry.reading
        case Kind.NAME if match[1] == "Ft":
            return "feet" + stop
        case _:
            return match[0]


def _title(match: re.Match[str]) -> str:
    if match[1] in STREETS:
        return without_stop(match)
    return "P H D" if match[1] == "PhD" else ABBREVIATIONS[match[1].lower()].reading


def _inner_stop(match: re.Match[str]) -> str:
    """ "node.js" is dictated; in "end.Then" a blank is missing."""
    before, behind = match.string[match.start() - 1], match.string[match.end()]
    return ". " if before.islower() and behind.isupper() else " dot "


def _capitals(match: re.Match[str]) -> str:
    letters, plural = match[1], match[2] or ""
    if letters in _READ:
        return _READ[letters] + plural
    return " ".join(letters) + ("'s" if plural else "") if is_spelled(letters) else letters.lower() + plural


def is_spelled(letters: str) -> bool:
    """Whether a word in capitals is."""
    return letters in _SPELLED or not (len(letters) > _MAX_SPELLED_LETTERS or is_pronounceable(letters))


def is_pronounceable(letters: str) -> bool:
    """Whether English words start and end like this: NASA, but not GPU or ATM."""
    first = next((index for index, letter in enumerate(letters) if letter in _VOWELS), None)
    if first is None:
        return False
    onset = letters[:first]
    coda = letters[max(index for index, letter in enumerate(letters) if letter in _VOWELS) + 1 :]
    return all(
        len(cluster) < 2 or legal.fullmatch(cluster) is not None
        for cluster, legal in ((onset, _ONSETS), (coda, _CODAS))
    )
