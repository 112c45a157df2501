"""Words are told before their audio is sent, once each, whatever comes when. Hollow models, a clock of ours."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from tests.support.word_times import words_in_time
from voicegate.engine.interface import AlignedText, Alignment, Cancelled, Done, SpeakingMode, UtteranceId
from voicegate.engine.text.alignment import Sound, WordTimes, split_words

MODES = [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL]
SENTENCE = "The train to the coast leaves at nine, and the other one a quarter later, from the platform behind it."
TEXT = f"{SENTENCE} Good morning! Please put 1,234 cups — all of them — back (in the fridge) when you are done. 3.14"


class Talk:
    """Utterances whose text comes in pieces of any length at any moment, with others beside them."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        config = replace(CONFIG, expected_tokens_per_text_token=0, lead_ms=self.draw.choice([1_000, 3_600_000]))
        self.engine = HandDrivenEngine(config, hollow(num_blocks=self.draw.choice([13, 200])).stages)
        self._unwritten: dict[UtteranceId, str] = {}
        for mode in MODES:
            utterance_id = self.engine.submit(mode.value, mode=mode, seed=seed, speed=self.draw.choice([0.8, 1.0, 1.3]))
            self._unwritten[utterance_id] = TEXT

    def speak(self) -> None:
        while self._unwritten:
            utterance_id = self.draw.choice(list(self._unwritten))
            self._write(utterance_id)
            self._step(self.draw.choice([0, 1, 5, 100]))
        self.run()

    def run(self) -> None:
        for _ in range(100_000):
            decision = self.engine.core.step()
            if decision.is_idle and decision.wake_at_s is None:
                return
            self.engine.now_s = max(self.engine.now_s + 0.001, decision.wake_at_s or 0.0)
        raise AssertionError("the engine is still busy")

    def _write(self, utterance_id: UtteranceId) -> None:
        text = self._unwritten[utterance_id]
        length = self.draw.choice([1, 3, 8, 40])
        self.engine.core.push_text(utterance_id, text[:length])
        self._unwritten[utterance_id] = text[length:]
        if not text[length:]:
            del self._unwritten[utterance_id]
            self.engine.core.end_text(utterance_id)

    def _step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.engine.step()


@pytest.mark.parametrize("seed", range(12))
def test_at_any_schedule_every_word_is_told_once_and_before_its_audio(seed: int) -> None:
    talk = Talk(seed)
    talk.speak()
    for heard in talk.engine.heard.values():
        assert isinstance(heard.end, Done)
        told = words_in_time(heard.events)
        assert [(item.text, item.char_start) for item in told] == [
            (word.text, word.char_start) for word in split_words(TEXT, 0)
        ]


@pytest.mark.parametrize("seed", range(6))
def test_a_cancel_says_what_was_told_and_heard(seed: int) -> None:
    talk = Talk(seed)
    for number, utterance_id in enumerate(talk.engine.heard):
        talk.engine.core.push_text(utterance_id, TEXT)
        talk._step(20 * number + 10 * seed)
    for utterance_id, heard in talk.engine.heard.items():
        played_ms = talk.draw.choice([None, 0, 700, 5_000])
        talk.engine.core.cancel(utterance_id, played_ms)
        end = heard.end
        assert isinstance(end, Cancelled)
        heard_ms = end.audio_ms if played_ms is None else min(played_ms, end.audio_ms)
        assert end.spoken_text + end.remaining_text == TEXT
        words = words_in_time(heard.events)
        whole = [item for item, following in pairwise(words) if max(item.end_ms, following.start_ms) <= heard_ms]
        # The engine knows better of the last one than what was told when its sound was yet to be made.
        last = [item for item in words[-1:] if item.end_ms <= heard_ms]
        cuts = {max([item.char_end for item in heard], default=0) for heard in (whole, whole + last)}
        assert len(end.spoken_text) in cuts


def told_in(mode: SpeakingMode, *, words_per_block: int | None) -> tuple[list[list[AlignedText]], int]:
    """Words told in each message, while the text comes in pieces (None: whole); and the length of the audio."""
    engine = HandDrivenEngine(stages=hollow().stages)
    utterance_id = engine.submit("u", mode=mode)
    words = [f"{word} " for word in SENTENCE.split()]
    size = words_per_block or len(words)
    for first in range(0, len(words), size):
        engine.core.push_text(utterance_id, "".join(words[first : first + size]))
        engine.run()
    engine.core.end_text(utterance_id)
    engine.run()
    heard = engine.heard[utterance_id]
    assert isinstance(heard.end, Done)
    return [list(event.items) for event in heard.events if isinstance(event, Alignment)], heard.end.audio_ms


@pytest.mark.parametrize("words_per_block", [None, 3])
@pytest.mark.parametrize("mode", MODES)
def test_words_come_block_by_block_and_where_their_letters_put_them(
    mode: SpeakingMode, words_per_block: int | None
) -> None:
    messages, audio_ms = told_in(mode, words_per_block=words_per_block)
    assert all(after[0].start_ms - before[0].start_ms <= 2_000 for before, after in pairwise(messages))
    whole = Sound(0, 0, audio_ms, audio_ms, is_length_known=True, is_last=True)
    truth = WordTimes(1.0).tell(SENTENCE, whole, char_start=0, num_letters=1)
    told = [item for items in messages for item in items]
    errors_ms = [abs(item.start_ms - true.start_ms) for item, true in zip(told, truth, strict=True)]
    assert sum(errors_ms) / len(errors_ms) <= 300


def test_a_word_that_is_still_being_written_is_not_told() -> None:
    engine = HandDrivenEngine(stages=hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    engine.core.push_text(utterance_id, "The train to the coast leaves at nine and the other one a quarter la")
    engine.run()
    told = words_in_time(engine.heard[utterance_id].events)
    assert told, "it is heard, though its sentence is not whole"
    assert "la" not in {item.text for item in told}
    engine.core.push_text(utterance_id, "ter.")
    engine.core.end_text(utterance_id)
    engine.run()
    assert words_in_time(engine.heard[utterance_id].events)[-1].text == "later."
