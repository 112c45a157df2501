"""How words are said that are not said as they are written: a table, and what of it a text goes on with. Pure data.

It must not know what a word is, nor how text is read: `engine/text/pronunciation.py` does.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# An entry is a word or a phrase, and what is said for it a few words. Higher -> more is looked at for each word read.
MAX_WRITTEN_CHARS: Final = 64
MAX_SAID_CHARS: Final = 128

_ECHO_CHARS: Final = 80
_BLANKS: Final = str.maketrans(dict.fromkeys("\t\n\r\x0b\x0c\x85\xa0\u2028\u2029", " "))


class DictionaryError(ValueError):
    """An entry is not usable. The message names it and says what it may be."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of a dictionary that a text has at one place."""

    found: tuple[tuple[int, str], ...]  # behind the last character of an entry, and what is said for it; longest last
    is_open: bool  # the text ends within an entry that is longer


NO_ENTRIES: Final = Entries((), is_open=False)


class Dictionary:
    """An entry in small letters is found in any case, one with a capital only as it is written. Immutable."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        """Takes written words -> spoken ones. Raises DictionaryError."""
        check_entries(entries)
        self._said: dict[str, str] = {}  # of entries that are found in any case
        self._said_exactly: dict[str, str] = {}  # of entries with capitals, as they are written
        lengths: dict[str, set[int]] = {}
        for written, said in entries.items():
            folded_written = folded(written)
            lengths.setdefault(folded_written[0], set()).add(len(written))
            if written == written.lower():
                self._said[folded_written] = said
            else:
                self._said_exactly[written.translate(_BLANKS)] = said
        self._lengths = {first: sorted(its_lengths) for first, its_lengths in lengths.items()}
        self._in_order = sorted({folded(written) for written in entries})

    def __len__(self) -> int:
        return len(self._said) + len(self._said_exactly)

    @property
    def entries(self) -> Mapping[str, str]:
        """Entries that make an equal one."""
        return {**self._said, **self._said_exactly}

    def look_up(self, text: str, folded_text: str, start: int) -> Entries:
        """The entry that `text` has at `start`; `folded_text` is `folded(text)`."""
        lengths = self._lengths.get(folded_text[start])
        if lengths is None:
            return NO_ENTRIES
        found: list[tuple[int, str]] = []
        rest = len(text) - start
        for length in lengths:
            if length > rest:
                break
            end = start + length
            said = self._said_exactly.get(text[start:end].translate(_BLANKS)) if self._said_exactly else None
            said = self._said.get(folded_text[start:end]) if said is None else said
            if said is not None:
                found.append((end, said))
        is_open = rest < lengths[-1] and self._has_longer(folded_text[start:])
        return Entries(tuple(found), is_open) if found or is_open else NO_ENTRIES

    def _has_longer(self, start: str) -> bool:
        index = bisect_right(self._in_order, start)
        return index < len(self._in_order) and self._in_order[index].startswith(start)


def folded(text: str) -> str:
    """In small letters, with blanks for all white space; as long as it was."""
    small = text.lower()
    if len(small) != len(text):  # a few letters have no single small one
        small = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
    return small.translate(_BLANKS)


def check_entries(entries: Mapping[str, str]) -> None:
    """Raises DictionaryError."""
    for written, said in entries.items():
        _check(written, said)


def _check(written: str, said: str) -> None:
    shown = written[:_ECHO_CHARS]
    if not written or written != written.strip() or not any(map(str.isalnum, written)):
        raise DictionaryError(
            f"{shown!r} cannot be looked for in a text: write a word or a phrase, no blanks around it"
        )
    if len(written) > MAX_WRITTEN_CHARS:
        raise DictionaryError(f"{shown!r} has {len(written)} characters; at most {MAX_WRITTEN_CHARS}")
    if not any(map(str.isalnum, said)) or not said.isprintable():
        raise DictionaryError(f"what is said for {shown!r} must be words on one line, not {said[:_ECHO_CHARS]!r}")
    if len(said) > MAX_SAID_CHARS:
        raise DictionaryError(f"what is said for {shown!r} has {len(said)} characters; at most {MAX_SAID_CHARS}")
