"""The stall timer: what an agent leaves unfinished is said, once and in time, on a clock of ours."""

import re
from dataclasses import replace

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from tests.support.word_times import words_in_time
from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.interface import AtRest, AudioReady, Done, Flushed, SpeakingMode, UtteranceId

STALL_S = 0.35
STALLING = replace(CONFIG, stall_ms=350, stall_lead_ms=500)
UNFINISHED = "Good morning, let me see what"  # "what" may go on as "whatever"


def hollow_engine(config: EngineConfig) -> HandDrivenEngine:
    return HandDrivenEngine(config, hollow().stages)


def audio_ms(heard: Heard) -> int:
    return sum(len(event.packets) * 20 for event in heard.events if isinstance(event, AudioReady))


def said(heard: Heard) -> str:
    return " ".join(item.text for item in words_in_time(heard.events))


def pushed(text: str, mode: SpeakingMode, engine: HandDrivenEngine) -> UtteranceId:
    utterance_id = engine.submit("u", mode=mode)
    engine.core.push_text(utterance_id, text)
    return utterance_id


def until_idle(engine: HandDrivenEngine) -> float | None:
    """Work until nothing is due, on a clock that stands still; when to come back."""
    now_s = engine.now_s
    while True:
        decision = engine.core.step()
        if decision.is_idle:
            assert engine.now_s == now_s
            return decision.wake_at_s


def said_at_s(engine: HandDrivenEngine, utterance_id: UtteranceId) -> float | None:
    """When more is heard without more text; None: never. The engine may also wake and find nothing to do."""
    num_events = len(engine.heard[utterance_id].events)
    while True:
        wake_s = until_idle(engine)
        if len(engine.heard[utterance_id].events) > num_events:
            return engine.now_s
        if wake_s is None:
            return None
        engine.now_s = wake_s


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_what_waits_is_said_after_the_stall_up_to_the_last_whole_word(mode: SpeakingMode) -> None:
    engine = hollow_engine(STALLING)
    utterance_id = pushed(UNFINISHED, mode, engine)
    heard = engine.heard[utterance_id]
    wake_s = until_idle(engine)
    assert wake_s is not None
    engine.now_s = wake_s - 0.001
    assert until_idle(engine) == wake_s
    before_ms = audio_ms(heard)
    engine.now_s = wake_s
    assert until_idle(engine) == constants.HALF_WORD_S, "one stall is spoken once"
    assert audio_ms(heard) > before_ms + 300
    assert said(heard) == "Good morning, let me see"

    engine.core.push_text(utterance_id, "ever there is.")
    engine.core.end_text(utterance_id)
    until_idle(engine)
    assert isinstance(heard.end, Done)
    assert said(heard) == "Good morning, let me see whatever there is."


def test_nothing_heard_yet_is_due_as_soon_as_the_writer_has_paused_for_so_long() -> None:
    engine = hollow_engine(STALLING)
    engine.now_s = 10.0
    pushed("Let me see ", SpeakingMode.CLAUSE, engine)
    assert until_idle(engine) == pytest.approx(10.0 + STALL_S)


def test_every_push_starts_the_wait_anew() -> None:
    engine = hollow_engine(STALLING)
    utterance_id = pushed("Let me ", SpeakingMode.CLAUSE, engine)
    for _ in range(5):
        engine.now_s += STALL_S * 0.9
        engine.core.push_text(utterance_id, "see ")
        until_idle(engine)
    last_s = engine.now_s
    assert not engine.heard[utterance_id].events
    assert said_at_s(engine, utterance_id) == pytest.approx(last_s + STALL_S)


def test_a_listener_with_audio_left_is_not_given_half_a_sentence() -> None:
    """The rest of the sentence may come before it is missed."""
    engine = hollow_engine(STALLING)
    utterance_id = pushed("Good morning, and how are you today? I think that ", SpeakingMode.CLAUSE, engine)
    until_idle(engine)
    left_ms = audio_ms(engine.heard[utterance_id])
    assert left_ms > 1000
    due_s = engine.now_s + left_ms / 1000 - 0.5
    assert said_at_s(engine, utterance_id) == pytest.approx(due_s, abs=0.021)


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
@pytest.mark.parametrize("stall_ms", [0, 350])
def test_without_anything_that_waits_there_is_nothing_to_wake_for(mode: SpeakingMode, stall_ms: int) -> None:
    engine = hollow_engine(replace(STALLING, stall_ms=stall_ms))
    utterance_id = pushed("Good morning. ", mode, engine)
    engine.core.flush_text(utterance_id, "f")
    until_idle(engine)
    heard = engine.heard[utterance_id]
    assert [type(event) for event in heard.events[-2:]] == [Flushed, AtRest]
    before_ms = audio_ms(heard)
    engine.core.push_text(utterance_id, "  \n")
    while (wake_s := until_idle(engine)) is not None:
        engine.now_s = wake_s
    assert audio_ms(heard) == before_ms


def test_off_means_that_text_waits_for_ever() -> None:
    engine = hollow_engine(replace(STALLING, stall_ms=0))
    utterance_id = pushed("Let me see ", SpeakingMode.CLAUSE, engine)
    assert until_idle(engine) is None
    engine.now_s = 3600.0
    assert until_idle(engine) is None
    assert not engine.heard[utterance_id].events


def test_half_a_number_waits_also_through_a_stall() -> None:
    engine = hollow_engine(STALLING)
    utterance_id = pushed("It is 3", SpeakingMode.CLAUSE, engine)
    wake_s = until_idle(engine)
    assert wake_s is not None
    engine.now_s = wake_s
    assert until_idle(engine) == constants.HALF_WORD_S
    assert said(engine.heard[utterance_id]) == "It is"
    engine.core.push_text(utterance_id, ":30 now.")
    engine.core.end_text(utterance_id)
    until_idle(engine)
    assert said(engine.heard[utterance_id]).endswith("3:30 now.")


@pytest.mark.parametrize("mode", list(SpeakingMode))
@pytest.mark.parametrize(
    "text", ["Hel", "3", "How can I help you", "Your total is $30.", "Is it Dr.", "你好吗", "Let me see [a link"]
)
def test_half_a_word_that_nothing_comes_after_is_said_as_it_stands_and_gives_its_place_back(
    text: str, mode: SpeakingMode
) -> None:
    """An agent's last token has no blank after it, and not every agent sends a flush."""
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u", mode=mode)
    for token in re.findall(r"\s*\S+", text):  # blanks come with the next word
        engine.core.push_text(utterance_id, token)
    while (wake_s := until_idle(engine)) is not None:
        engine.now_s = wake_s
    heard = engine.heard[utterance_id]
    assert "".join(said(heard).split()) == "".join(text.split())
    assert heard.events[-1] == AtRest(utterance_id, len(text))
    assert engine.now_s == pytest.approx(max(constants.HALF_WORD_S, audio_ms(heard) / 1000), abs=2.0)
    assert engine.core.num_placed == 0
    engine.core.push_text(utterance_id, "lo there.")
    engine.core.end_text(utterance_id)
    until_idle(engine)
    assert said(heard).endswith("lo there.")


def test_a_pause_for_longer_than_half_a_word_waits_is_spoken_in_one_go() -> None:
    """Its listener had audio meanwhile, and hears no seam before the last word."""
    engine = hollow_engine(STALLING)
    text = "Good morning, my friend. And how are you and your little sister today? I think that"
    utterance_id = pushed(text, SpeakingMode.CLAUSE, engine)
    until_idle(engine)
    assert audio_ms(engine.heard[utterance_id]) / 1000 > constants.HALF_WORD_S + 0.5
    said_at_s(engine, utterance_id)
    assert said(engine.heard[utterance_id]).endswith("I think that")


def test_what_is_not_for_ears_keeps_no_place() -> None:
    """A thought that is not over, and what may be the start of a tag, are not said, however long nothing comes."""
    engine = hollow_engine(STALLING)
    utterance_id = pushed("Hello. <think>where is it", SpeakingMode.CLAUSE, engine)
    while (wake_s := until_idle(engine)) is not None:
        engine.now_s = wake_s
    assert engine.core.num_placed == 0
    engine.core.push_text(utterance_id, ", I wonder</think> Here. <thi")
    while (wake_s := until_idle(engine)) is not None:
        engine.now_s = wake_s
    assert engine.core.num_placed == 0
    engine.core.push_text(utterance_id, "nk> No.</think> There.")
    engine.core.end_text(utterance_id)
    until_idle(engine)
    assert said(engine.heard[utterance_id]) == "Hello. Here. There."


# --- a context's own rule -------------------------------------------------------------------------------------


def test_text_waits_for_no_longer_than_its_context_lets_it() -> None:
    """However steadily more of it comes: the time counts from the oldest word."""
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u", max_buffer_delay_ms=1000)
    for _ in range(4):
        engine.core.push_text(utterance_id, "let me see ")
        until_idle(engine)
        engine.now_s += 0.3
    assert not engine.heard[utterance_id].events
    until_idle(engine)
    assert audio_ms(engine.heard[utterance_id]) > 0


def test_what_comes_behind_a_stall_waits_as_long_again() -> None:
    """A word that the stall has left waits on, and is no reason to say at once what comes to it."""
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u", max_buffer_delay_ms=1000)
    engine.core.push_text(utterance_id, "Let me see what")
    assert said_at_s(engine, utterance_id) == pytest.approx(1.0)
    until_idle(engine)
    assert said(engine.heard[utterance_id]) == "Let me see"
    engine.now_s = 60.0
    engine.core.push_text(utterance_id, "ever there ")
    assert said_at_s(engine, utterance_id) == pytest.approx(61.0)


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.INCREMENTAL])
@pytest.mark.parametrize("delay_ms", [0, 100, 3000])
def test_a_context_says_for_itself_how_long_its_text_waits(mode: SpeakingMode, delay_ms: int) -> None:
    engine = hollow_engine(STALLING)
    engine.now_s = 10.0
    utterance_id = engine.submit("u", mode=mode, max_buffer_delay_ms=delay_ms)
    engine.core.push_text(utterance_id, "Well, ")
    assert said_at_s(engine, utterance_id) == pytest.approx(10.0 + delay_ms / 1000)
    assert said(engine.heard[utterance_id]) == "Well,"


def test_what_a_pass_is_given_as_it_comes_waits_from_its_last_word_on() -> None:
    """Else a long sentence would be cut in the middle, though all of it is said as it is written."""
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u", mode=SpeakingMode.BISTREAM, max_buffer_delay_ms=1000)
    for _ in range(5):
        engine.now_s += 0.5
        engine.core.push_text(utterance_id, "and so on ")
        until_idle(engine)
    wake_s = until_idle(engine)
    assert wake_s is not None
    assert wake_s >= engine.now_s + 1.0
    engine.core.cancel(utterance_id, None)
