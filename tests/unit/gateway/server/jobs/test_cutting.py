"""How a long text becomes parts: nothing is lost, none is long, and paragraphs stay whole where they can."""

import time

import pytest

from voicegate.gateway.server.jobs.cutting import PART_BYTES, parts_of

ENGLISH = "It was a bright cold day in April, and the clocks were striking thirteen. "
CHINESE = "四月里一个晴朗寒冷的日子，时钟敲了十三下。"


def texts_of(text: str, language: str = "en") -> list[str]:
    return [part.text for part in parts_of([text], language, has_breaks=True)]


@pytest.mark.parametrize(("text", "language"), [(ENGLISH * 40, "en"), (CHINESE * 60, "zh"), ("word " * 900, "en")])
def test_parts_are_the_text_and_none_is_long(text: str, language: str) -> None:
    parts = texts_of(text, language)
    assert "".join(parts) == text
    assert max(len(part.encode()) for part in parts) <= PART_BYTES
    assert len(parts) < 2 * len(text.encode()) / PART_BYTES + 2


def test_a_part_ends_with_a_sentence() -> None:
    assert all(part.strip().endswith(".") for part in texts_of(ENGLISH * 40))


def test_paragraphs_begin_parts_where_these_are_half_full() -> None:
    paragraph = ENGLISH * 5
    assert [part.strip() for part in texts_of(f"{paragraph}\n\n{paragraph}\n\n{paragraph}")] == [paragraph.strip()] * 3
    assert len(texts_of("Short.\n\nAnd short.\n\nAnd short again.")) == 1


def test_code_is_left_out_and_may_be_long() -> None:
    code = "```\n" + "x = 1\n\n" * 400 + "```\n"
    assert "".join(texts_of(f"Before it.\n\n{code}\nAfter it.")).split() == ["Before", "it.", "After", "it."]


def test_texts_share_no_part() -> None:
    parts = parts_of(["One.", "Two.", ENGLISH * 10], "en", has_breaks=True)
    assert [(part.input, part.text) for part in parts[:2]] == [(0, "One."), (1, "Two.")]
    assert {part.input for part in parts[2:]} == {2}


def test_a_long_text_leaves_most_of_the_time_to_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that computes without a break holds up each system call of the event loop's."""
    pauses_s: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses_s.append)
    text, begun_s = "<a " * 20_000, time.thread_time()
    parts_of([text], "en", has_breaks=True)
    assert sum(pauses_s) > 2 * (time.thread_time() - begun_s)
    assert len(pauses_s) > len(text) / 1000
