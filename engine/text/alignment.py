"""Which word is heard when: an estimate from lengths, for captions and for what a cancel leaves unsaid. Pure.

The model gives no word times: time is spread over a clause's words in proportion to the letters of each. They are told
before their sound leaves, when even the clause's length may be a guess: a time is off by some 0.3 s then, and right
where a clause begins.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import AlignedText
from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.spoken_length import is_said_alone, letters_of_break, letters_of_sign, letters_of_words

# Weight of the pace of a voice's prompt, in letters, beside that of the clauses spoken since. Lower -> one hasty clause
# rushes the guess for the next; higher -> a prompt read slowly makes all words late.
_PROMPT_LETTERS: Final = 40

# A word lasts beyond what was certain of it only if it is expected to by so much: a number, an address. Lower -> all
# words are told later, 40 ms in the mean at 0; higher -> what follows a long one is told so much too early.
_LONG_MS: Final = 400

_ASCII_WORD: Final = re.compile(r"\S+")
_ASCII_LETTER: Final = re.compile(r"[A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Sound:
    """Sound of the clause that is heard, in milliseconds of its utterance's audio."""

    start_ms: int  # of the clause
    sent_ms: int  # so much has left
    until_ms: int  # so much will have left, with what leaves now
    known_ms: int  # so much there will be of it at least
    is_length_known: bool  # `known_ms` is its end
    is_last: bool  # nothing of it follows


class WordTimes:
    """Word times of one utterance. Told times stand; later ones make good for them."""

    def __init__(self, ms_per_letter: float, pronunciation: Pronunciation | None = None) -> None:
        """`ms_per_letter`: the pace at which its voice is expected to speak, by what is said (spoken_length)."""
        self._pronunciation = pronunciation or Pronunciation()
        self.told: list[AlignedText] = []
        self._spoken_ms = ms_per_letter * _PROMPT_LETTERS
        self._spoken_letters = _PROMPT_LETTERS
        self._text = ""  # of the clause that is heard
        self._char_start = 0
        # Its words that are not told yet, and what each counts for of the whole.
        self._to_come: deque[tuple[TextSpan, int]] = deque()
        self._share_to_come = 0
        self._share_told = 0
        self._last_share = 0  # of the last word that was told, while its clause is heard
        self._ends_ms: list[int] = []  # of those told, by what is known now: not before what was told

    def tell(self, text: str, sound: Sound, *, char_start: int, num_letters: int) -> tuple[AlignedText, ...]:
        """The words that begin in what leaves now; with the last of a clause all that are left of it.

        `text` is the clause's as far as nothing that may follow makes other words of it; `char_start`: where it begins;
        `num_letters`: that it is said with (spoken_length).
        """
        if text != self._text or char_start != self._char_start:
            self._look_at(text, char_start)
        begin_ms = self._begin_ms(sound, num_letters)
        left_ms = self._left_ms(sound, begin_ms, num_letters)
        share, num_before = self._share_to_come, 0
        words: list[AlignedText] = []
        while self._to_come:
            start_ms = begin_ms + left_ms * num_before // share
            if start_ms >= sound.until_ms and not sound.is_last:
                break
            word, self._last_share = self._to_come.popleft()
            num_before += self._last_share
            ends_ms = begin_ms + left_ms * num_before // share
            # An end that is only guessed could turn out to lie behind the clause's.
            told_ms = max(start_ms, min(ends_ms, sound.known_ms))
            words.append(AlignedText(word.text, start_ms, told_ms, word.char_start, word.char_end))
            self._ends_ms.append(max(start_ms, ends_ms))
        self.told += words
        self._share_to_come -= num_before
        self._share_told += num_before
        if sound.is_last and self._share_told:
            self._spoken_ms += sound.until_ms - sound.start_ms
            self._spoken_letters += num_letters
            self._share_told = self._last_share = 0
        return tuple(words)

    def num_spoken_chars(self, at_ms: int) -> int:
        """Characters of the utterance that were said by then: up to the end of the last word heard to its end."""
        num_spoken = bisect_right(self._ends_ms, at_ms)
        return self.told[num_spoken - 1].char_end if num_spoken else 0

    def _begin_ms(self, sound: Sound, num_letters: int) -> int:
        """Begin of the words to come: where the last one that was told ends, by present knowledge.

        A word that is said with many ("1,234,567") lasts longer than what was certain when it was told. What is certain
        may be of words that are yet to be written: before the clause's length is known the pace alone decides.
        """
        if not self.told:
            return sound.sent_ms
        last, share = self.told[-1], self._last_share
        if share:
            if sound.is_length_known:
                ends_ms = last.start_ms + (sound.known_ms - last.start_ms) * share // (share + self._share_to_come)
            else:
                ends_ms = last.start_ms + self._guessed_ms(num_letters, share)
            at_least_ms = max(last.end_ms, sound.sent_ms)
            self._ends_ms[-1] = ends_ms if ends_ms - at_least_ms > _LONG_MS else at_least_ms
        return max(sound.sent_ms, self._ends_ms[-1])

    def _look_at(self, text: str, char_start: int) -> None:
        num_told = max(self.told[-1].char_end - char_start, 0) if self.told else 0
        words = split_words(text, char_start, begin=num_told)
        self._to_come = deque((word, self._share(word.text)) for word in words)
        self._share_to_come = sum(share for _, share in self._to_come)
        self._text, self._char_start = text, char_start

    def _share(self, word: str) -> int:
        letters = letters_of_words(self._pronunciation.said(word)) or letters_of_sign(word)
        return letters + letters_of_break(word)

    def _left_ms(self, sound: Sound, begin_ms: int, num_letters: int) -> int:
        """For the words to come; a guess where neither the clause's length is known nor all of its text."""
        left_ms = max(sound.known_ms - begin_ms, 0)
        if sound.is_length_known or not self._to_come:
            return left_ms
        return max(left_ms, self._guessed_ms(num_letters, self._share_to_come))

    def _guessed_ms(self, num_letters: int, share: int) -> int:
        """Guessed time of words that count for so much of a clause which is said with so many letters, by the pace."""
        clause_ms = num_letters * self._spoken_ms / self._spoken_letters
        return round(clause_ms * share / (self._share_told + self._share_to_come))


def split_words(text: str, char_offset: int, *, begin: int = 0) -> list[TextSpan]:
    """Words from index `begin` on as written, with the punctuation at them; each wide character is one.

    Of what stands alone without a letter or digit only signs that are said. No whitespace, no bare punctuation.
    """
    if text.isascii():  # the same, a few times faster: a first sound waits for it
        spans = (match.span() for match in _ASCII_WORD.finditer(text, begin))
        words = (span for span in spans if _ASCII_LETTER.search(text, *span) or is_said_alone(text, *span))
        return [TextSpan(text[start:end], char_offset + start, char_offset + end) for start, end in words]
    return [TextSpan(text[start:end], char_offset + start, char_offset + end) for start, end in _words_of(text, begin)]


def _words_of(text: str, begin: int) -> Iterator[tuple[int, int]]:
    start: int | None = None  # of the present word
    has_letter = has_wide = False
    for index in range(begin, len(text) + 1):
        char = text[index] if index < len(text) else " "
        wide = is_wide(char)
        # Opening punctuation stays with the wide character behind it, closing punctuation with the one before.
        opens = wide or (has_wide and (char.isalnum() or unicodedata.category(char) in ("Ps", "Pi")))
        if char.isspace() or (has_letter and opens):
            if start is not None and (has_letter or is_said_alone(text, start, index)):
                yield start, index
            start, has_letter, has_wide = None, False, False
        if not char.isspace():
            start = index if start is None else start
            has_letter = has_letter or char.isalnum()
            has_wide = has_wide or wide
