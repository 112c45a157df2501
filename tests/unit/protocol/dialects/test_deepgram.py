"""Golden conversations of Deepgram's clients: what each frame becomes, and what comes back."""

from typing import Any

import pytest

from tests.unit.protocol.dialects.conversation import READY, cancelled, done, error, find_anna, said, shown, told
from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.deepgram import Deepgram, Settings
from voicegate.protocol.dialects.dialect import Speech
from voicegate.protocol.formats import OutputFormat

FLUSH, CLEAR, CLOSE = {"type": "Flush"}, {"type": "Clear"}, {"type": "Close"}


def speak(text: str) -> dict[str, str]:
    return {"type": "Speak", "text": text}


def flushed(sequence_id: int) -> dict[str, Any]:
    return {"type": "Flushed", "sequence_id": sequence_id}


def opened(number: int = 0) -> wire.Open:
    return wire.Open(context=f"turn#{number}", voice="anna", format=wire.Format(codec="pcm_s16le"))


def deepgram() -> Deepgram:
    return Deepgram(Settings("anna", OutputFormat()), find_anna)


@pytest.fixture
def dialect() -> Deepgram:
    return deepgram()


def test_a_turn(dialect: Deepgram) -> None:
    (metadata,) = told(dialect, READY)
    assert (metadata["type"], metadata["request_id"], metadata["model_name"]) == ("Metadata", "session-1", "fake")
    assert said(dialect, speak("Hello ")) == [opened(), wire.Text("turn#0", "Hello ")]
    assert said(dialect, speak("there.")) == [wire.Text("turn#0", "there.")]
    assert said(dialect, FLUSH) == [wire.Flush("turn#0")]
    assert told(dialect, Speech("turn#0", b"ab", 0, 10)) == [b"ab"]
    assert told(dialect, wire.Flushed("turn#0", "", 10)) == [wire.End("turn#0")], (
        "nobody waits, so its room is given up"
    )
    assert told(dialect, Speech("turn#0", b"cd", 10, 12, is_last=True)) == [b"cd"], "what an encoder held back"
    assert told(dialect, done("turn#0")) == [flushed(0)]
    assert said(dialect, speak("More."))[0] == opened(1)


def test_text_behind_a_flush_goes_on_with_the_turn(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH, speak("Two. "))
    assert told(dialect, wire.Flushed("turn#0", "", 10)) == [flushed(0)]
    assert said(dialect, FLUSH) == [wire.Flush("turn#0")]
    assert told(dialect, wire.Flushed("turn#0", "", 20), done("turn#0")) == [wire.End("turn#0"), flushed(1)]


def test_each_flush_has_its_answer(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH, FLUSH)
    answers = told(dialect, wire.Flushed("turn#0", "", 10), wire.Flushed("turn#0", "", 10), done("turn#0"))
    assert answers == [flushed(0), wire.End("turn#0"), flushed(1)]
    assert said(dialect, FLUSH) == [flushed(2)], "also where there is nothing to say"


def test_flushes_have_a_limit(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), *[FLUSH] * 20)
    (answer,) = said(dialect, FLUSH)
    assert (answer["type"], answer["code"]) == ("Warning", "rate_limited")
    answers = told(dialect, *[wire.Flushed("turn#0", "", 10)] * 20, done("turn#0"))
    assert len([each for each in answers if isinstance(each, dict)]) == 20


def test_what_comes_while_a_turn_ends_comes_after_it(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    told(dialect, wire.Flushed("turn#0", "", 10))
    assert said(dialect, speak("Two. "), FLUSH, CLOSE) == []
    effects = told(dialect, done("turn#0"))
    assert effects == [flushed(0), opened(1), wire.Text("turn#1", "Two. "), wire.Flush("turn#1"), wire.End("turn#1")]
    assert told(dialect, done("turn#1")) == [flushed(1), ("hangup", 1000)]


def test_only_so_much_waits(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    told(dialect, wire.Flushed("turn#0", "", 10))
    answers = said(dialect, *[speak("x" * 60_000) for _ in range(5)])
    assert [answer["code"] for answer in answers] == ["rate_limited"]


def test_flushes_that_wait_have_their_limit_too(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    told(dialect, wire.Flushed("turn#0", "", 10))
    assert said(dialect, speak("Two. "), *[FLUSH] * 21, speak("Three. ")) == []
    *_, last_flush, warning, text = told(dialect, done("turn#0"))
    assert (last_flush, text) == (wire.Flush("turn#1"), wire.Text("turn#1", "Three. "))
    assert (warning["type"], warning["code"]) == ("Warning", "rate_limited")


def test_clear_is_a_barge_in(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    assert said(dialect, CLEAR) == [wire.Cancel("turn#0"), {"type": "Cleared", "sequence_id": 0}]
    assert told(dialect, Speech("turn#0", b"ab", 0, 10)) == [], "audio has no name, so none of the old turn follows"
    assert said(dialect, speak("Two. "))[0] == opened(1), "at once"
    assert told(dialect, wire.Flushed("turn#0", "", 10), cancelled("turn#0")) == [], "nor an answer of its flush"
    assert told(dialect, Speech("turn#1", b"cd", 0, 10)) == [b"cd"]


def test_clear_forgets_what_waits(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    told(dialect, wire.Flushed("turn#0", "", 10))
    said(dialect, speak("Two. "))
    said(dialect, CLEAR)
    assert told(dialect, done("turn#0")) == []
    assert said(dialect, CLEAR) == [{"type": "Cleared", "sequence_id": 1}], "also where there is nothing"


def test_close_waits_for_what_was_said(dialect: Deepgram) -> None:
    assert said(dialect, speak("One. "), CLOSE)[2:] == [wire.End("turn#0")]
    assert said(dialect, speak("Two. ")) == []
    assert told(dialect, done("turn#0")) == [("hangup", 1000)]
    assert said(deepgram(), CLOSE) == [("hangup", 1000)]


def test_a_refused_turn_answers_its_flush(dialect: Deepgram) -> None:
    said(dialect, speak("One. "))
    (refusal,) = told(dialect, error("overloaded", "full", "turn#0"))
    assert (refusal["type"], refusal["code"], refusal["description"]) == ("Error", "overloaded", "full")
    assert said(dialect, speak("half a sentence. ")) == []
    assert said(dialect, FLUSH) == [flushed(0)]
    assert said(dialect, speak("Two. "))[0] == opened(1)


def test_a_turn_that_fails_behind_its_flush(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    (_, answer) = told(dialect, error("engine_failed", "broken", "turn#0"))
    assert answer == flushed(0)
    assert said(dialect, speak("Two. "))[0] == opened(1)


def test_a_spoken_turn_has_not_failed_where_the_server_goes_away(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    assert told(dialect, wire.Flushed("turn#0", "", 10), error("overloaded", "it goes", "turn#0")) == [
        wire.End("turn#0"),
        flushed(0),
    ]


def test_a_turn_that_is_cut_off_where_the_server_goes_away_has_failed(dialect: Deepgram) -> None:
    said(dialect, speak("One. "), FLUSH)
    (failure, answer) = told(dialect, error("overloaded", "it goes", "turn#0"))
    assert (failure["type"], answer) == ("Error", flushed(0))


def test_an_idle_turn_is_forgotten(dialect: Deepgram) -> None:
    said(dialect, speak("One. "))
    assert told(dialect, error("expired", "idle", "turn#0")) == []
    assert said(dialect, speak("Two. "))[0] == opened(1)


@pytest.mark.parametrize("frame", ["{", b"\x00", '{"type": "Shout"}', '{"text": "x"}', '{"type": "Speak", "text": 1}'])
def test_what_is_no_message_is_answered(dialect: Deepgram, frame: str | bytes) -> None:
    (answer,) = shown(dialect.receive(frame))
    assert (answer["type"], answer["code"]) == ("Warning", "bad_message")
    assert answer["description"] == answer["warn_msg"]
    assert said(dialect, speak("One. ")), "and nothing is over"


def test_what_says_nothing_changes_nothing() -> None:
    assert said(deepgram(), speak(""), {"type": "KeepAlive"}) == []


def test_text_that_is_too_long_is_told(dialect: Deepgram) -> None:
    said(dialect, speak("One. "))
    (answer,) = told(dialect, error("bad_message", "text of 70000 bytes", "turn#0", fatal=False))
    assert (answer["type"], answer["description"]) == ("Warning", "text of 70000 bytes")
