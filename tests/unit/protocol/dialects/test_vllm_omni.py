"""Golden conversations of vLLM-Omni's clients: what each frame becomes, and what comes back."""

from typing import Any

import orjson
import pytest

from tests.unit.protocol.dialects.conversation import (
    alignment,
    b64,
    cancelled,
    done,
    error,
    find_anna,
    said,
    shown,
    told,
)
from voicegate.protocol import messages as wire
from voicegate.protocol.dialects import vllm_omni
from voicegate.protocol.dialects.dialect import Hangup, Reply, Speech
from voicegate.protocol.dialects.one_shot import LEAD_MS
from voicegate.protocol.dialects.vllm_omni import VllmOmni
from voicegate.protocol.errors import CloseCode

DONE, CANCEL = {"type": "input.done"}, {"type": "input.cancel"}
STREAMED = {"response_format": "pcm", "stream_audio": True}


def omni(**config: Any) -> VllmOmni:
    dialect = VllmOmni(find_anna)
    assert said(dialect, {"type": "session.config", "voice": "anna", **config}) == []
    return dialect


def text(text: str) -> dict[str, str]:
    return {"type": "input.text", "text": text}


WHOLE_FILE = wire.Pace(lead_ms=LEAD_MS)


def opened(number: int = 0, **fields: Any) -> wire.Open:
    values = {"context": f"utterance#{number}", "voice": "anna", "format": wire.Format(codec="pcm_s16le"), **fields}
    return wire.Open(**values)


def ends(number: int, num_bytes: int, *, is_error: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "type": "audio.done",
            "utterance_index": number,
            "sentence_index": 0,
            "total_bytes": num_bytes,
            "error": is_error,
        },
        {"type": "session.done", "utterance_index": number, "total_sentences": 1},
    ]


def started(number: int, said_text: str, name: str = "pcm", **fields: Any) -> dict[str, Any]:
    return {
        "type": "audio.start",
        "utterance_index": number,
        "sentence_index": 0,
        "sentence_text": said_text,
        "format": name,
        "sample_rate": 24_000,
        **fields,
    }


@pytest.fixture
def dialect() -> VllmOmni:
    return omni(**STREAMED)


def test_streamed_audio(dialect: VllmOmni) -> None:
    assert said(dialect, text("Hello ")) == [opened(), wire.Text("utterance#0", "Hello ")]
    assert said(dialect, text("there."), DONE) == [wire.Text("utterance#0", "there."), wire.End("utterance#0")]
    assert told(dialect, Speech("utterance#0", b"ab", 0, 10)) == [started(0, "Hello there."), b"ab"]
    assert told(dialect, Speech("utterance#0", b"cd", 10, 20)) == [b"cd"]
    assert told(dialect, done("utterance#0")) == ends(0, 4)
    assert said(dialect, text("Next."))[0] == opened(1)


def test_one_file() -> None:
    dialect = omni()
    said(dialect, text("Hi."), DONE)
    assert told(dialect, Speech("utterance#0", b"RIFF", 0, 10), Speech("utterance#0", b"ab", 10, 20)) == []
    assert told(dialect, done("utterance#0")) == [started(0, "Hi.", "wav"), b"RIFFab", *ends(0, 6)]


def test_words_with_their_times() -> None:
    dialect = omni(**STREAMED, word_timestamps=True)
    said(dialect, text("Hi you."), DONE)
    assert told(dialect, alignment("utterance#0", ("Hi", 0, 0, 100), ("you.", 3, 100, 300))) == []
    (start, chunk) = told(dialect, Speech("utterance#0", b"ab", 0, 100))
    assert start == started(0, "Hi you.", word_timestamps=True)
    assert chunk == {
        "type": "audio.chunk",
        "utterance_index": 0,
        "sentence_index": 0,
        "chunk_id": 0,
        "chunk_start_ms": 0,
        "chunk_end_ms": 100,
        "sample_rate": 24_000,
        "audio_b64": b64(b"ab"),
        "timestamps": [{"word": "Hi", "start_ms": 0, "end_ms": 100}],
    }
    (chunk,) = told(dialect, Speech("utterance#0", b"cd", 100, 300))
    assert (chunk["chunk_id"], chunk["timestamps"][0]["word"]) == (1, "you.")


def test_an_utterance_without_text_is_done(dialect: VllmOmni) -> None:
    assert said(dialect, DONE) == [opened(), wire.End("utterance#0")]
    assert told(dialect, done("utterance#0")) == [started(0, ""), *ends(0, 0)]


def test_the_next_utterance_waits_for_the_last(dialect: VllmOmni) -> None:
    said(dialect, text("One."), DONE)
    assert said(dialect, {"type": "session.config", "speed": 1.5, **STREAMED}, text("Two."), DONE, text("Three.")) == []
    effects = told(dialect, done("utterance#0"))[3:]
    assert effects == [opened(1, voice=None, speed=1.5), wire.Text("utterance#1", "Two."), wire.End("utterance#1")]
    assert told(dialect, done("utterance#1"))[3:][0].context == "utterance#2"


def test_a_config_that_cannot_be_is_told_where_it_waited(dialect: VllmOmni) -> None:
    said(dialect, text("One."), DONE)
    assert said(dialect, {"type": "session.config", "response_format": "midi"}, text("Two.")) == []
    complaint, *effects = told(dialect, done("utterance#0"))[3:]
    assert (complaint["type"], complaint["message"][:26]) == ("error", "response_format is 'midi';")
    assert effects == [opened(1), wire.Text("utterance#1", "Two.")], "the old one holds"


def test_a_cancel_is_ours(dialect: VllmOmni) -> None:
    assert said(dialect, CANCEL) == []
    said(dialect, text("One."))
    assert said(dialect, CANCEL) == [wire.Cancel("utterance#0")]
    assert told(dialect, cancelled("utterance#0")) == [started(0, "One."), *ends(0, 0, is_error=True)]


def test_a_failure_ends_its_utterance(dialect: VllmOmni) -> None:
    said(dialect, text("One."))
    told(dialect, Speech("utterance#0", b"ab", 0, 10))
    effects = told(dialect, error("engine_failed", "broken", "utterance#0"))
    complaint = {"type": "error", "message": "broken", "partial_audio": True, "action": "discard"}
    assert effects == [complaint, *ends(0, 2, is_error=True)]
    assert said(dialect, text("half a sentence"), DONE) == []
    assert said(dialect, text("Two."))[0] == opened(1)


def test_a_file_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_omni, "_MAX_FILE_BYTES", 3)
    dialect = omni()
    said(dialect, text("One."))
    assert told(dialect, Speech("utterance#0", b"ab", 0, 10)) == []
    complaint, cancel = told(dialect, Speech("utterance#0", b"cd", 10, 20))
    assert (complaint["type"], complaint["action"], cancel) == ("error", "discard", wire.Cancel("utterance#0"))
    assert told(dialect, Speech("utterance#0", b"ef", 20, 30)) == [], "which was on its way; it is told once"
    assert told(dialect, cancelled("utterance#0"))[-2]["error"] is True


def test_a_file_over_its_bound_is_stopped_behind_its_whole_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_omni, "_MAX_FILE_BYTES", 3)
    dialect = omni()
    said(dialect, text("One."), DONE)
    assert told(dialect, Speech("utterance#0", b"abcd", 0, 20))[1:] == [wire.Cancel("utterance#0")]
    assert told(dialect, Speech("utterance#0", b"ef", 20, 30)) == []
    assert said(dialect, text("Two.")) == []
    assert told(dialect, cancelled("utterance#0"))[-2:] == [
        opened(1, pace=WHOLE_FILE),
        wire.Text("utterance#1", "Two."),
    ]


@pytest.mark.parametrize("end", [cancelled("utterance#0"), error("engine_failed", "broken", "utterance#0")])
def test_the_rest_of_a_text_whose_file_was_too_long_is_not_spoken(
    monkeypatch: pytest.MonkeyPatch, end: wire.Cancelled | wire.Error
) -> None:
    monkeypatch.setattr(vllm_omni, "_MAX_FILE_BYTES", 3)
    dialect = omni()
    said(dialect, text("Half a "))
    told(dialect, Speech("utterance#0", b"abcd", 0, 20))
    assert said(dialect, text("sentence."), DONE, text("Two.")) == []
    assert told(dialect, end)[-2:] == [opened(1, pace=WHOLE_FILE), wire.Text("utterance#1", "Two.")]


@pytest.mark.parametrize("anew", [CANCEL, {"type": "session.config", "voice": "anna"}])
def test_behind_a_failure_a_client_may_begin_anew_without_ending_what_failed(anew: dict[str, str]) -> None:
    dialect = omni()
    said(dialect, text("One."))
    told(dialect, error("overloaded", "full", "utterance#0"))
    assert said(dialect, text("half a sentence"), anew) == []
    assert said(dialect, text("Two.")) == [opened(1, pace=WHOLE_FILE), wire.Text("utterance#1", "Two.")]


def test_what_waits_for_an_utterance_is_bounded_whatever_it_is(dialect: VllmOmni) -> None:
    said(dialect, text("One."), DONE)
    long = "x" * 100_000
    assert said(dialect, {"type": "session.config", "instructions": long}, {"type": "input.text", "voice": long}) == []
    for more in ({"type": "session.config", "language": long}, text(long)):
        (answer,) = said(dialect, more)
        assert answer["message"].startswith("too much text while an utterance is spoken")
    assert said(dialect, text("Two.")) == [], "there is room for this one"


@pytest.mark.parametrize(
    ("frame", "said_text"),
    [
        ("{", "not JSON"),
        (b"\x00", "a client sends text messages only"),
        ('{"type": "session.resume"}', "Invalid enum value"),
        ('{"type": "session.config", "response_format": "midi"}', "response_format is 'midi'"),
        ('{"type": "session.config", "seed": -1}', "Expected `int` >= 0"),
    ],
)
def test_what_is_no_message_is_answered(frame: str | bytes, said_text: str) -> None:
    (answer,) = shown(VllmOmni(find_anna).receive(frame))
    assert answer["type"] == "error"
    assert answer["message"].startswith(said_text)


def test_what_a_config_says() -> None:
    dialect = omni(instructions="Slowly.", seed=7, speed=0.1, speaker="x", voice=None, response_format="opus")
    (opening, _) = said(dialect, text("Hi."))
    assert opening == wire.Open(
        context="utterance#0", format=wire.Format(), speed=0.5, instruct="Slowly.", seed=7, pace=WHOLE_FILE
    )


@pytest.mark.parametrize("field", ["ref_audio", "ref_text", "speaker_embedding"])
def test_a_config_that_brings_a_voice_is_refused_and_nothing_is_spoken(field: str) -> None:
    """In the place of a stranger's voice; its client would wait for speech."""
    dialect = VllmOmni(find_anna)
    refused, hangup = dialect.receive(orjson.dumps({"type": "session.config", field: "abc"}).decode())
    assert isinstance(refused, Reply)
    message = orjson.loads(refused.frame)["message"]
    assert f"{field} is not taken on this socket: send it to POST /v1/audio/speech" in message
    assert hangup == Hangup(CloseCode.POLICY, f"{field} is not taken")
    assert said(dialect, text("Hello.")) == said(dialect, DONE) == []


def test_so_is_one_that_waited_for_an_utterance(dialect: VllmOmni) -> None:
    said(dialect, text("Hello.")), said(dialect, DONE)
    assert said(dialect, {"type": "session.config", "ref_audio": "abc"}) == said(dialect, text("More.")) == []
    *_, refused, hangup = dialect.word(done("utterance#0"))
    assert isinstance(refused, Reply)
    assert "ref_audio is not taken" in str(refused.frame)
    assert isinstance(hangup, Hangup)


def test_close() -> None:
    dialect = omni()
    assert said(dialect, {"type": "session.close"}, text("Hi.")) == [("hangup", 1000)]


def test_a_close_lets_what_is_done_be_heard(dialect: VllmOmni) -> None:
    said(dialect, text("One."), DONE, text("Two."), DONE, text("never done"))
    assert said(dialect, {"type": "session.close"}, CANCEL) == []
    heard = told(dialect, done("utterance#0"))
    assert heard[-3:] == [opened(1), wire.Text("utterance#1", "Two."), wire.End("utterance#1")]
    assert told(dialect, done("utterance#1"))[-3:] == [
        opened(2),
        wire.Text("utterance#2", "never done"),
        ("hangup", 1000),
    ]


def test_a_close_amid_a_text_ends_it(dialect: VllmOmni) -> None:
    said(dialect, text("never done"))
    assert said(dialect, {"type": "session.close"}) == [("hangup", 1000)]


def test_of_a_text_no_more_is_kept_than_is_shown(dialect: VllmOmni) -> None:
    for _ in range(4):
        said(dialect, text("x" * 60_000))
    (start, *_rest) = told(dialect, Speech("utterance#0", b"ab", 0, 1))
    assert len(start["sentence_text"]) == 65_536
    assert dialect._utterance is not None
    assert len(dialect._utterance.text) == 65_536


def test_null_is_what_is_not_said() -> None:
    dialect = omni(response_format=None, speed=None, instructions=None, language=None, seed=None)
    assert said(dialect, text("hi")) == [opened(pace=WHOLE_FILE), wire.Text("utterance#0", "hi")]
    assert told(dialect, Speech("utterance#0", b"RIFF", 0, 1), done("utterance#0"))[0]["format"] == "wav"
