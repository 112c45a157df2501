"""Where many have work, words for a listener who has plenty to hear are kept until they are needed."""

import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.core import constants
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.core.reprefills import Reprefills
from voicegate.engine.interface import Alignment, Done, SpeakingMode

TEXT = (
    "Thank you for waiting so long for my answer, I have looked at your last order and found that it has left our"
    " warehouse on Monday, so it should be with you by the end of this week. Is there anything else that I can do?"
)
WORDS = re.findall(r"\S+\s*", TEXT)


class Writer:
    """Twenty words a second for one utterance, each its own push."""

    def __init__(self, **asked: Any) -> None:
        self.engine = HandDrivenEngine(replace(CONFIG, lead_ms=3000, stall_ms=350), stages=hollow().stages)
        self.utterance_id = self.engine.submit("u", mode=SpeakingMode.INCREMENTAL, **asked)
        self.news: list[bool] = []
        self.first_sound_at: int | None = None  # how many words were written then

    def write(self, words: list[str]) -> None:
        begun_s = self.engine.now_s
        num_written = 0
        while num_written < len(words):
            if self.engine.now_s >= begun_s + num_written / 20:
                self.news.append(self.engine.core.push_text(self.utterance_id, words[num_written]))
                num_written += 1
            self.engine.step()
            if self.first_sound_at is None and self.engine.heard[self.utterance_id].pcm:
                self.first_sound_at = len(self.news)

    def end(self) -> Done:
        self.engine.core.end_text(self.utterance_id)
        while (end := self.engine.heard[self.utterance_id].end) is None:
            self.engine.step()
        assert isinstance(end, Done)
        return end


@pytest.fixture
def num_bites(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    bites: Counter[str] = Counter()
    read = ClauseFeed.read

    def counted(feed: ClauseFeed) -> None:
        bites["read"] += 1
        read(feed)

    monkeypatch.setattr(ClauseFeed, "read", counted)
    return bites


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have work."""
    monkeypatch.setattr(constants, "MANY_DUE", 0)
    monkeypatch.setattr(constants, "FEW_DUE", 0)


@pytest.mark.usefixtures("many")
def test_they_are_read_in_few_bites_once_something_is_heard(num_bites: Counter[str]) -> None:
    writer = Writer()
    writer.write(WORDS)
    assert writer.first_sound_at is not None
    num_first = writer.first_sound_at
    assert num_first <= 6, "each word counts before the first sound"
    assert all(writer.news[:num_first])
    assert num_bites["read"] - num_first < (len(WORDS) - num_first) / 2
    assert not all(writer.news), "somebody who sleeps need not wake up for each"
    done = writer.end()
    told = [event for event in writer.engine.heard[writer.utterance_id].events if isinstance(event, Alignment)]
    assert " ".join(word.text for each in told for word in each.items) == TEXT
    assert done.audio_ms > 0


def test_where_few_have_work_each_is_read_as_it_comes(num_bites: Counter[str]) -> None:
    writer = Writer()
    writer.write(WORDS)
    assert all(writer.news)
    assert num_bites["read"] >= len(WORDS) - 2


def test_they_lie_for_a_moment_and_never_until_their_block_is_due() -> None:
    readings = Reprefills(CONFIG, lookahead_tokens=3, held_back_frames=4)

    def lies_until_s(deadline_s: float) -> tuple[float, float]:
        """And when the next block is due."""
        utterance: Any = SimpleNamespace(deadline_s=deadline_s, may_gather=True, unread_since_s=10.0)
        due_s, _ = readings._due_s(utterance, 10.0)
        return readings.gathers_until_s(utterance, 10.0), due_s

    until_s, due_s = lies_until_s(deadline_s=60.0)
    assert due_s > 50.0
    assert until_s == pytest.approx(10.3), "a sentence that is over is found out"
    until_s, due_s = lies_until_s(deadline_s=60.0 - (due_s - 10.1))
    assert due_s == pytest.approx(10.1)
    assert until_s == pytest.approx(10.08), "just before"


@pytest.mark.usefixtures("many")
def test_the_end_and_a_flush_are_no_words() -> None:
    writer = Writer()
    writer.write(WORDS[:12])
    core = writer.engine.core
    while core.push_text(writer.utterance_id, "and "):
        writer.engine.step()
    utterance = core._roster.named(writer.utterance_id)
    assert utterance is not None
    assert utterance.feed.has_unread
    core.flush_text(writer.utterance_id, "f")
    writer.engine.step()
    writer.engine.step()
    assert not utterance.feed.has_unread


@pytest.mark.usefixtures("many")
def test_who_says_how_long_text_may_wait_is_read_word_by_word() -> None:
    writer = Writer(max_buffer_delay_ms=0)
    writer.write(WORDS)
    assert all(writer.news)
