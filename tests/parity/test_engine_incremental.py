"""Speaking while a sentence is written, on the tiny model and a clock of ours: what it depends on, and what not."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from tests.support.word_times import words_in_time
from voicegate.engine.core import constants
from voicegate.engine.interface import Cancelled, Done, Flushed, SpeakingMode, UtteranceId

MODE = SpeakingMode.INCREMENTAL
STALLING = replace(CONFIG, stall_ms=350, stall_lead_ms=500)
SENTENCE = "Please put the milk back in the fridge when you are done."


def pieces(text: str) -> list[str]:
    """As most LLMs write: the blank in front."""
    first, *others = text.split()
    return [first, *(f" {word}" for word in others)]


class Writer:
    """Writes into one utterance at a pace; the engine answers at once, on its clock."""

    def __init__(self, *, mode: SpeakingMode = MODE, seed: int = 1, voice: str = "woman") -> None:
        self.engine = HandDrivenEngine(STALLING)
        self.utterance_id: UtteranceId = self.engine.submit("u", mode=mode, seed=seed, voice=voice)
        self.first_audio_s: float | None = None

    @property
    def heard(self) -> Heard:
        return self.engine.heard[self.utterance_id]

    def write(self, words: list[str], *, word_s: float = 0.05) -> None:
        for word in words:
            self.engine.core.push_text(self.utterance_id, word)
            self.wait(word_s)

    def wait(self, seconds: float) -> None:
        until_s = self.engine.now_s + seconds
        while (wake_s := self._until_idle()) is not None and wake_s <= until_s:
            self.engine.now_s = max(self.engine.now_s, wake_s)
        self.engine.now_s = until_s

    def end(self) -> Heard:
        self.engine.core.end_text(self.utterance_id)
        for _ in range(100):
            wake_s = self._until_idle()
            if self.heard.end is not None:
                return self.heard
            assert wake_s is not None, "nothing would ever happen again"
            self.engine.now_s = max(self.engine.now_s, wake_s)
        raise AssertionError("the utterance does not end")

    def _until_idle(self) -> float | None:
        while not (decision := self.engine.core.step()).is_idle:
            pass
        if self.first_audio_s is None and self.heard.pcm:
            self.first_audio_s = self.engine.now_s
        return decision.wake_at_s


def said(heard: Heard) -> str:
    return " ".join(item.text for item in words_in_time(heard.events))


def test_it_is_heard_words_before_its_sentence_ends_and_says_all_of_it() -> None:
    writer = Writer()
    writer.write(pieces(SENTENCE))
    heard = writer.end()
    assert isinstance(heard.end, Done)
    assert not heard.end.is_truncated
    assert said(heard) == SENTENCE
    assert writer.first_audio_s is not None
    assert writer.first_audio_s <= 0.2  # on the engine's clock: the fifth word of twelve


def test_the_same_words_at_the_same_moments_and_the_same_seed_are_the_same_speech() -> None:
    speeches = []
    for seed in (1, 1, 2):
        writer = Writer(seed=seed)
        writer.write(pieces(SENTENCE))
        speeches.append(writer.end().pcm)
    assert speeches[0] == speeches[1] != speeches[2]


def test_how_a_word_was_split_between_blocks_changes_nothing() -> None:
    """All words known at a block are what counts: here each comes in letters, at the moment it came in one."""
    whole, split = Writer(), Writer()
    whole.write(pieces(SENTENCE))
    for word in pieces(SENTENCE):
        for letter in word:
            split.engine.core.push_text(split.utterance_id, letter)
        split.wait(0.05)
    assert whole.end().pcm == split.end().pcm


def test_two_blocks_of_one_reading_are_those_of_two_readings_that_know_the_same() -> None:
    """How slow the engine was does not count, only what it knew."""
    speeches = []
    for later_s in (0.1, 0.7):  # so slow that two blocks are made at once, and that the third may wait for "are done."
        writer = Writer()
        times = writer.engine.core._reprefills.block_time
        times.took(0.1, 0.0, is_first=True)
        times.took(later_s, 0.0, is_first=False)
        writer.write(["Please put the milk back in the fridge when you "], word_s=0.05)
        writer.write(["are done."], word_s=0.0)
        speeches.append(writer.end().pcm)
    assert speeches[0] == speeches[1]


def test_a_sentence_that_is_there_at_once_is_one_whole_pass() -> None:
    incremental, by_clause = Writer(), Writer(mode=SpeakingMode.CLAUSE)
    for writer in (incremental, by_clause):
        writer.engine.core.push_text(writer.utterance_id, SENTENCE)
    assert incremental.end().pcm == by_clause.end().pcm


def test_a_later_sentence_waits_until_it_is_whole_behind_the_audio_before_it() -> None:
    writer = Writer()
    writer.write(pieces(SENTENCE))
    writer.write([" I", " will", " call", " you"], word_s=0.02)
    num_made = len(writer.heard.pcm)
    writer.write([" tomorrow."], word_s=0.02)
    assert len(writer.heard.pcm) == num_made
    heard = writer.end()
    assert said(heard) == f"{SENTENCE} I will call you tomorrow."


def test_a_writer_who_stalls_has_what_is_whole_said_and_goes_on_later() -> None:
    writer = Writer()
    writer.write(["Please", " put", " the", " milk", " back", " in", " the", " fr"])
    writer.wait(constants.HALF_WORD_S - 0.1)
    assert said(writer.heard) == "Please put the milk back in the"
    writer.write(["idge", " when", " you", " are", " done."])
    assert said(writer.end()) == SENTENCE


def test_half_a_word_is_said_when_its_writer_stalls_for_long() -> None:
    writer = Writer()
    writer.write(["Please", " put", " the", " milk", " back", " in", " the", " fr"])
    writer.wait(30.0)
    assert said(writer.heard) == "Please put the milk back in the fr"
    writer.write(["idge", "."])
    assert said(writer.end()) == "Please put the milk back in the fr idge."


def test_a_flush_is_answered_when_what_came_before_it_is_spoken() -> None:
    writer = Writer()
    writer.write(["Please", " put", " the", " milk", " back"])
    writer.engine.core.flush_text(writer.utterance_id, "f")
    writer.wait(10.0)
    flushed = [event for event in writer.heard.events if isinstance(event, Flushed)]
    assert [event.flush_id for event in flushed] == ["f"]
    assert said(writer.heard) == "Please put the milk back"
    writer.end()


@pytest.mark.parametrize("num_words", [1, 4, 6, 12])
def test_a_cancel_gives_all_text_back_and_leaves_nothing(num_words: int) -> None:
    writer = Writer()
    writer.write(pieces(SENTENCE)[:num_words])
    core = writer.engine.core
    core.cancel(writer.utterance_id, None)
    end = writer.heard.end
    assert isinstance(end, Cancelled)
    assert end.spoken_text + end.remaining_text == "".join(pieces(SENTENCE)[:num_words])
    assert not core._pipeline.active


def test_two_that_grow_beside_each_other_are_what_they_are_alone() -> None:
    alone = Writer()
    alone.write(pieces(SENTENCE))
    expected = alone.end().pcm
    writer = Writer()
    engine = writer.engine
    other = engine.submit("other", mode=MODE, seed=7, voice="man")
    for word in pieces(SENTENCE):
        engine.core.push_text(other, word)
        writer.write([word])
    engine.core.end_text(other)
    got = np.frombuffer(writer.end().pcm, "<i2").astype(int)
    wanted = np.frombuffer(expected, "<i2").astype(int)
    assert got.shape == wanted.shape  # the same tokens; batches of another shape round their sums differently
    assert np.abs(got - wanted).max() <= 8
