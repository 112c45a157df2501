"""An exception at any place that handles one utterance's input ends that utterance, and nobody else notices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.hollow_stages import hollow, hollow_voice
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.audio.encoding import LocalEncoding
from voicegate.engine.audio.outlet import Outlet
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.core.look import Look
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.reception import Reception
from voicegate.engine.core.reprefills import Reprefills
from voicegate.engine.core.speaking import Speaking
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.flow.stream import BlockStream
from voicegate.engine.interface import (
    Cancelled,
    Done,
    EngineError,
    Failed,
    ListenerReport,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.text.alignment import WordTimes
from voicegate.engine.vocoder.runner import VocoderRunner

VICTIM = UtteranceId("victim")

# Objects through which one utterance's input goes, and their methods.
PLACES = [
    (Reception, "open"),
    *[(ClauseFeed, name) for name in ("push", "flush", "end", "read", "stalled")],
    *[(Utterance, name) for name in ("push", "flush", "end", "read", "stall", "stalls_at_s", "note_listener")],
    *[(Utterance, name) for name in ("deliver", "align", "answer_flushes", "finish", "cancel")],
    *[(Outlet, name) for name in ("send_audio", "send", "flush", "finish")],
    *[(Speaking, name) for name in ("take_text", "start", "take_output", "take_samples")],
    *[(Pipeline, name) for name in ("start", "feed", "take_tokens", "release")],
    *[(Pipeline, name) for name in ("can_start", "can_generate")],
    *[(Look, name) for name in ("at", "_next_clauses")],
    (BlockStream, "append"),
    (LocalEncoding, "encode"),
]

# Likewise for a sentence that is spoken while it is written.
GROWING_PLACES = [
    *[(Reprefills, name) for name in ("next_reprefill", "first_block", "until_block")],
    *[(ClauseFeed, name) for name in ("push", "grow")],
    *[(Utterance, name) for name in ("note_sayable", "align", "deliver")],
    *[(Speaking, name) for name in ("start", "read_again", "take_output", "take_samples")],
    *[(Pipeline, name) for name in ("start", "read_again", "take_tokens", "release")],
]


# Text that the victim begins with. The long one takes several readings.
WRITTEN = {
    SpeakingMode.BISTREAM: ["Let me see what "],
    SpeakingMode.INCREMENTAL: ["Let me see what the people ", "at the other end ", "of the line may want "],
}


class Bug(Exception):
    pass


def concerns(thing: Any, engine: HandDrivenEngine) -> bool:
    """Whether an argument of the call is the victim's."""
    victims = [utterance for utterance in engine.core._roster if utterance.utterance_id == VICTIM]
    match thing:
        case UtteranceRequest() | Utterance():
            return getattr(thing, "utterance_id", None) == VICTIM
        case Outlet():
            return thing._utterance_id == VICTIM
        case Clause():
            return any(thing.key == victim.key for victim in victims)
        case ClauseFeed():
            return any(thing is victim.feed for victim in victims)
        case LocalEncoding():
            return any(thing is victim._outlet._encoding for victim in victims)
        case BlockStream():
            clauses = [clause for victim in victims for clause in victim.clauses]
            return any(clause.rendering is not None and clause.rendering.flow is thing for clause in clauses)
        case _:
            return False


def break_for_victim(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, engine: HandDrivenEngine) -> None:
    whole: Callable[..., Any] = getattr(owner, name)

    def broken(self: Any, *args: Any, **options: Any) -> Any:
        if any(concerns(thing, engine) for thing in (self, *args)):
            raise Bug("made to fail: secret")
        return whole(self, *args, **options)

    monkeypatch.setattr(owner, name, broken)


def speak_beside(engine: HandDrivenEngine, *, is_cancelled: bool, mode: SpeakingMode = SpeakingMode.BISTREAM) -> None:
    """A neighbour's whole life, and beside it a victim's that goes through everything."""
    core = engine.core
    neighbour = engine.submit("neighbour", seed=7)
    core.push_text(neighbour, "Good morning, and welcome back. ")
    for _ in range(3):
        engine.step()
    engine.submit(VICTIM, mode=mode, seed=5)
    for piece in WRITTEN[mode]:
        core.push_text(VICTIM, piece)
        for _ in range(30):
            engine.step()
    core.note_listener(VICTIM, ListenerReport(played_ms=0))
    core.push_text(neighbour, "The train to the coast leaves at nine.")
    core.end_text(neighbour)
    engine.now_s += 1.0  # it stalls
    engine.step()
    core.flush_text(VICTIM, "f")
    if is_cancelled:
        engine.step()
        core.cancel(VICTIM, None)
    engine.run()
    core.push_text(VICTIM, "there is. And more of it.")
    core.end_text(VICTIM)
    engine.run()


STALLING = replace(CONFIG, stall_ms=350)


def assert_others_notice_nothing(engine: HandDrivenEngine) -> None:
    alone = HandDrivenEngine(STALLING, hollow().stages)
    text = "Good morning, and welcome back. The train to the coast leaves at nine."
    heard = engine.heard[UtteranceId("neighbour")]
    assert isinstance(heard.end, Done)
    assert heard.pcm == alone.speak("neighbour", [text], seed=7).pcm
    assert isinstance(engine.speak("after", ["Good morning."]).end, Done)


def ends_of(engine: HandDrivenEngine) -> list[Any]:
    events = engine.heard[VICTIM].events
    ends = [event for event in events if isinstance(event, Done | Cancelled | Failed)]
    assert ends == events[-1:], "exactly one end, and nothing behind it"
    return ends


@pytest.mark.parametrize(
    ("owner", "name", "mode"),
    [
        *[(*place, SpeakingMode.BISTREAM) for place in PLACES],
        *[(*place, SpeakingMode.INCREMENTAL) for place in GROWING_PLACES],
    ],
    ids=lambda part: part.__name__ if isinstance(part, type) else str(part),
)
def test_one_utterances_bug_ends_it_alone(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mode: SpeakingMode
) -> None:
    models = hollow()
    free = models.held
    engine = HandDrivenEngine(STALLING, models.stages)
    with monkeypatch.context() as patched, capture_logs() as logs:
        break_for_victim(patched, owner, name, engine)
        speak_beside(engine, is_cancelled=name == "cancel", mode=mode)
    (end,) = ends_of(engine)
    assert isinstance(end, Failed)
    assert end.message == "internal error while speaking this utterance"
    assert any(entry.get("exc_info") for entry in logs), "its traceback is in the log"
    assert_others_notice_nothing(engine)
    assert models.held == free


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Pipeline, "release"), (HollowRunner, "abort"), (VocoderRunner, "close"), (LocalEncoding, "close")],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_what_cannot_be_given_back_holds_up_nobody(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    models = hollow()
    engine = HandDrivenEngine(STALLING, models.stages)
    engine.heard[VICTIM] = Heard()
    is_broken = False
    whole: Callable[..., Any] = getattr(owner, name)

    def broken(self: Any, *args: Any) -> Any:
        nonlocal is_broken
        if not is_broken and engine.heard[VICTIM].end is not None:
            is_broken = True
            raise Bug("made to fail: secret")
        return whole(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, broken)
        speak_beside(engine, is_cancelled=True)
    assert is_broken
    assert isinstance(ends_of(engine)[0], Cancelled)
    assert_others_notice_nothing(engine)


def test_an_event_that_cannot_be_made_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HandDrivenEngine(STALLING, hollow().stages)
    with monkeypatch.context() as patched:
        patched.setattr(WordTimes, "num_spoken_chars", lambda *_: 1 / 0)
        speak_beside(engine, is_cancelled=True)
    (end,) = ends_of(engine)
    assert isinstance(end, Failed)
    assert_others_notice_nothing(engine)


def test_a_voice_that_breaks_is_told_to_whoever_brought_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HandDrivenEngine(STALLING, hollow().stages)
    answers: list[ReadyVoice | EngineError] = []
    with monkeypatch.context() as patched:
        patched.setattr("voicegate.engine.core.voice_shelf._prompts_of", lambda *_: 1 / 0)
        engine.core.prepare_voice(hollow_voice("guest"), answers.append)
        speak_beside(engine, is_cancelled=False)
    assert "internal error" in str(answers[0])
    assert isinstance(ends_of(engine)[0], Done)
    assert_others_notice_nothing(engine)
