"""A break in the text is silence in the speech, where it stands, and changes nothing else."""

import numpy as np
import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from voicegate.engine import units
from voicegate.engine.interface import Alignment, Cancelled, Done, Flushed, SpeakingMode

MODES = pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL])
SECOND = '<break time="1s"/>'
BEFORE, BEHIND = "The train leaves at noon.", "Mind the gap."


def speak(mode: SpeakingMode, *pieces: str) -> Heard:
    return HandDrivenEngine(CONFIG, hollow().stages).speak("u", pieces, mode=mode)


def silences(heard: Heard) -> list[tuple[int, int]]:
    """Where each begins and how long it lasts, in ms. Of the hollow model no sample is 0."""
    is_silent = np.frombuffer(heard.pcm, np.int16) == 0
    edges = np.flatnonzero(np.diff(is_silent, prepend=False, append=False))
    return [
        (units.samples_to_ms(int(start)), units.samples_to_ms(int(end - start)))
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def silences_ms(heard: Heard) -> list[int]:
    return [length_ms for _, length_ms in silences(heard)]


def starts_ms(heard: Heard) -> dict[str, int]:
    return {word.text: word.start_ms for event in heard.events if isinstance(event, Alignment) for word in event.items}


@MODES
@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_break_is_silence_where_it_stands(mode: SpeakingMode, size: int) -> None:
    text = f"{BEFORE} {SECOND} {BEHIND}"
    heard = speak(mode, *(text[start : start + size] for start in range(0, len(text), size)))
    assert silences_ms(heard) == [1000]
    assert isinstance(heard.end, Done)
    assert heard.end.audio_ms == units.samples_to_ms(len(heard.pcm) // 2)
    ((start_ms, _),) = silences(heard)
    assert starts_ms(heard)["Mind"] == start_ms + 1000


def test_what_is_said_beside_it_is_the_same() -> None:
    heard = speak(SpeakingMode.CLAUSE, f"{BEFORE} {SECOND} {BEHIND}")
    plain = speak(SpeakingMode.CLAUSE, f"{BEFORE} {BEHIND}")
    assert heard.pcm.replace(bytes(2 * units.ms_to_samples(1000)), b"") == plain.pcm


@MODES
def test_a_break_ends_what_is_said_in_one_pass(mode: SpeakingMode) -> None:
    assert silences_ms(speak(mode, f"The train{SECOND}leaves at noon.")) == [1000]


@MODES
@pytest.mark.parametrize(
    "text",
    [f"{SECOND} {BEFORE}", f"{SECOND}{SECOND}", f"... {SECOND} ..."],
)
def test_silence_alone_is_no_speech(mode: SpeakingMode, text: str) -> None:
    assert silences_ms(speak(mode, text)) == []


@MODES
@pytest.mark.parametrize(
    ("breaks", "length_ms"),
    [
        (f"{SECOND} {SECOND}{SECOND}", 3000),
        (f'{SECOND} ... <break time="2.5s"/>', 3500),
        ('<break time="9s"/>' * 2, 6000),
        ('<break time="3s"/>' * 5, 10_000),
    ],
)
def test_breaks_side_by_side_add_up_to_a_limit(mode: SpeakingMode, breaks: str, length_ms: int) -> None:
    assert silences_ms(speak(mode, f"{BEFORE} {breaks} {BEHIND}{SECOND}")) == [length_ms, 1000]


@MODES
def test_a_break_behind_one_that_was_made_adds_to_it(mode: SpeakingMode) -> None:
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    utterance_id = engine.submit("u", mode=mode)
    for piece in (BEFORE, SECOND, SECOND, '<break time="3s"/>' * 3, BEHIND):
        engine.core.push_text(utterance_id, piece)
        engine.run()
    engine.core.end_text(utterance_id)
    engine.run()
    assert silences_ms(engine.heard[utterance_id]) == [10_000]


@MODES
def test_a_break_behind_what_was_spoken_comes_all_the_same(mode: SpeakingMode) -> None:
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    utterance_id = engine.submit("u", mode=mode)
    engine.core.push_text(utterance_id, BEFORE)
    engine.core.flush_text(utterance_id, "first")
    engine.run()
    engine.core.push_text(utterance_id, f"{SECOND} {BEHIND}")
    engine.core.flush_text(utterance_id, "second")
    engine.core.end_text(utterance_id)
    engine.run()
    heard = engine.heard[utterance_id]
    assert silences_ms(heard)[-1] >= 1000  # and what fills the first flush's last packet
    first, second = (event for event in heard.events if isinstance(event, Flushed))
    assert isinstance(heard.end, Done)
    assert (first.flush_id, second.flush_id, second.audio_ms) == ("first", "second", heard.end.audio_ms)
    assert starts_ms(heard)["Mind"] == first.audio_ms + 1000


def test_a_cancel_within_a_break_has_all_before_it_spoken() -> None:
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.CLAUSE)
    engine.core.push_text(utterance_id, f"{BEFORE} {SECOND} {BEHIND}")
    engine.core.end_text(utterance_id)
    while silences_ms(engine.heard[utterance_id]) != [1000]:
        engine.step()
    ((start_ms, _),) = silences(engine.heard[utterance_id])
    engine.core.cancel(utterance_id, start_ms + 500)
    end = engine.heard[utterance_id].end
    assert isinstance(end, Cancelled)
    assert end.spoken_text == BEFORE
    assert end.spoken_text + end.remaining_text == f"{BEFORE} {SECOND} {BEHIND}"


def test_silence_is_in_its_listeners_hands_too() -> None:
    """So what follows it is not made before it is needed."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.CLAUSE)
    (utterance,) = engine.core._roster
    utterance.deliver(np.ones(units.ms_to_samples(100), np.float32), engine.now_s)
    before_s = utterance.deadline_s
    utterance.pause(1000, engine.now_s)
    assert before_s is not None
    assert utterance.deadline_s == pytest.approx(before_s + 1.0)
    engine.core.cancel(utterance_id, None)
