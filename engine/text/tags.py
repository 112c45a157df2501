"""Tags that make the voice do something ([laughter], <strong>): which there are, and where they stand in a text. Pure.

Anybody who writes the text may use these, and the notation of phonemes ([R][EH1][D]) and of pinyin ([j][ǐ]). The other
words of a model's format (<|endofprompt|>) stay out: with them a text could end the prompt. A phoneme alone is none, or
"[a]" in a list would become a sound. `TextTokenizer` knows which tags its model has; `data/tags.yaml` has all of them.
"""

import re
from collections.abc import Callable, Set
from typing import Any, Final

from voicegate.engine.text.data_files import read_data
from voicegate.engine.text.patterns import any_of

_DATA: Final = read_data("tags", dict[str, Any])

EXPRESSIVE_TAGS: Final = frozenset(_DATA["expressive"])
_VOWELS: Final = {f"[{vowel}{stress}]": said for vowel, said in _DATA["vowels"].items() for stress in ("", *"012")}
_CONSONANTS: Final = {f"[{consonant}]": said for consonant, said in _DATA["consonants"].items()}
_INITIALS: Final = _DATA["pinyin"]["initials"].split()
_FINALS: Final = _DATA["pinyin"]["finals"].split()
# How what stands in a notation is spelled for a model that does not have it.
_SPELLED: Final = {**_VOWELS, **_CONSONANTS, **{f"[{part}]": part for part in (*_INITIALS, *_FINALS)}}
NOTATION_TOKENS: Final = frozenset(_SPELLED)

_VOWEL: Final = rf"\[(?:{any_of(_DATA['vowels'])})[012]?\]"
_CONSONANT: Final = rf"\[(?:{any_of(_DATA['consonants'])})\]"
# A vowel at least, and another sound or its stress; an initial with its final, or a final with its tone.
_PHONEMES: Final = (
    rf"(?:{_CONSONANT})+{_VOWEL}(?:{_VOWEL}|{_CONSONANT})*|{_VOWEL}(?:{_VOWEL}|{_CONSONANT})+"
    rf"|\[(?:{any_of(_DATA['vowels'])})[012]\]"
)
_SYLLABLE: Final = (
    rf"\[(?:{any_of(_INITIALS)})\]\[(?:{any_of(_FINALS)})\]"
    rf"|\[(?:{any_of(final for final in _FINALS if not final.isascii())})\]"
)
# Cartesia's: what is in it is spelled. One that is torn by a cut is closed there.
_SPELL: Final = r"<spell>[^<>]{0,200}(?:</spell>|\Z)"
# Not before "(": that is the text of a link.
_TAG: Final = re.compile(f"({any_of(EXPRESSIVE_TAGS)}|{_PHONEMES}|(?:{_SYLLABLE})+|{_SPELL})(?!\\()")
_TOKEN: Final = re.compile(r"\[[^\[\]]+\]")
_SPELL_PARTS: Final = re.compile(r"<spell>([^<>]*)(?:</spell>)?")
_SPELL_EDGE: Final = re.compile(r"</?spell>")
_LEADING_MARK: Final = re.compile(r"\s*([.,?!;:。，？！；：、])")

_SOUND_OF: Final = {name: tag for tag, names in _DATA["sounds"].items() for name in names}
_SOUND: Final = any_of(_SOUND_OF)
_MANNER: Final = rf"(?!(?:{any_of(_DATA['unheard']['not_manners'])})\])[a-z]{{2,16}}ly"
_OTHERS: Final = re.compile(
    rf"\[(?P<sound>{_SOUND})\](?!\()|\((?P<aside>{_SOUND})\)|<(?P<tag>{_SOUND})>|(?<![\w*])\*(?P<acted>{_SOUND})\*(?![\w*])"
    rf"|\[(?:{any_of(_DATA['unheard']['words'])}|(?:[a-z]{{2,12}} )?{_MANNER})\](?![(:])",
    re.IGNORECASE,
)
_OTHERS_OPENING: Final = re.compile(r"[\[(<*][A-Za-z]")


def split_tags(text: str) -> list[str]:
    """Text, tag, text, ..., text: at the odd places tags, notations and what is to be spelled; at least one text."""
    return _TAG.split(text) if "[" in text or "<" in text else [text]


def tokens_of(tag: str) -> list[str]:
    """A tag is one of the model's, a notation several."""
    return _TOKEN.findall(tag) if tag in _SPELLED or tag.count("[") > 1 else [tag]


def with_own_tags(text: str) -> str:
    """Other vendors' tags as the ones that make their sound, or without them: [laughs] -> [laughter]."""
    return _OTHERS.sub(_own_tag, text) if _OTHERS_OPENING.search(text) else text


def without_tags(text: str, kept: Set[str]) -> str:
    """`text` without the tags of which not all are `kept`; a notation is spelled then."""
    return _TAG.sub(lambda match: _kept(match[0], kept), text) if "[" in text or "<" in text else text


def spelling_of(tag: str) -> str | None:
    """Text to be spelled, of `<spell>AB12</spell>`; None of other tags."""
    parts = _SPELL_PARTS.fullmatch(tag)
    return None if parts is None else parts[1]


def without_spelling(text: str) -> str:
    return _SPELL_EDGE.sub("", text) if "spell>" in text else text


def is_spelling_behind(text: str, *, was_spelling: bool) -> bool:
    """Whether what follows `text` is to be spelled, as the last tag in it says."""
    edges = _SPELL_EDGE.findall(text) if "spell>" in text else []
    return edges[-1] == "<spell>" if edges else was_spelling


def read_around_tags(pieces: list[str], read: Callable[[str], str], *, has_blanks: bool) -> str:
    """`pieces` of `split_tags`, the texts read and the tags in their places.

    `has_blanks`: whether the language writes blanks between words.
    """
    parts = [read(pieces[0])]
    for before, tag, behind in zip(pieces[::2], pieces[1::2], pieces[2::2], strict=False):
        gap = " " if has_blanks and before[-1:].isspace() and any(parts) else ""
        mark = _LEADING_MARK.match(behind)
        words = read(behind)
        is_apart = has_blanks and (mark is not None or behind[:1].isspace())
        parts.append(gap + tag + (mark[1] if mark else "") + (" " + words if words and is_apart else words))
    return "".join(parts)


def _own_tag(match: re.Match[str]) -> str:
    name = match["sound"] or match["aside"] or match["tag"] or match["acted"]
    return f" {_SOUND_OF[name.lower()]} " if name else " "


def _kept(tag: str, kept: Set[str]) -> str:
    tokens = tokens_of(tag)
    if tag.startswith("<spell>") or kept >= set(tokens):
        return tag
    return "".join(_SPELLED.get(token, " ") for token in tokens)
