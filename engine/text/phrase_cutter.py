"""Words that leave together, where a dictionary may have a phrase that goes on behind them (bistream). Pure."""

from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.word_cutter import WordCutter


class PhraseCutter:
    """The cuts of `words`, but for those inside what is, or may become, an entry of `pronunciation`."""

    def __init__(self, words: WordCutter, pronunciation: Pronunciation) -> None:
        self._words = words
        self._pronunciation = pronunciation
        self._length = 0  # of the words that are cut and held

    def next_cut(self, text: str) -> int | None:
        """Length of the first span of `text`, None while undecided. `text` only grows until it is cut."""
        while (cut := self._words.next_cut(text[self._length :])) is not None:
            self._length += cut
            if not self._pronunciation.may_go_on(text[: self._length]):
                length, self._length = self._length, 0
                return length
        return None

    def restart(self, text: str) -> None:
        """All of `text` leaves now, whatever was undecided about it."""
        self._length = 0
        self._words.restart(text)
