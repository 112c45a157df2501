"""Golden conversations of ElevenLabs' clients: what each frame becomes, and what comes back."""

from typing import Any

import pytest
from elevenlabs.types import WebsocketTtsClientMessageMulti
from msgspec.structs import replace

from tests.unit.protocol.dialects.conversation import (
    READY,
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
from voicegate.protocol.dialects.dialect import Speech
from voicegate.protocol.dialects.elevenlabs import MultiStream, SingleStream
from voicegate.protocol.dialects.elevenlabs_speaker import Settings
from voicegate.protocol.dialects.format_names import elevenlabs_format
from voicegate.protocol.formats import OutputFormat

PCM = Settings("anna", elevenlabs_format("pcm_24000"))
AUTO = Settings("anna", PCM.output, is_auto=True)
PCM_FORMAT = wire.Format(codec="pcm_s16le")
NO_AUDIO = {"audio": None, "normalizedAlignment": None, "alignment": None}
CLOSE = {"context_id": "a", "close_context": True}


def multi(settings: Settings = PCM) -> MultiStream:
    return MultiStream(settings, find_anna)


def opened(native: str = "a#0", **fields: Any) -> wire.Open:
    return wire.Open(**{"context": native, "voice": "anna", "format": PCM_FORMAT, **fields})


def final(name: str = "a") -> dict[str, Any]:
    return {"isFinal": True, **NO_AUDIO, "contextId": name, "context_id": name}


@pytest.fixture
def dialect() -> MultiStream:
    return multi()


def test_pipecats_turn(dialect: MultiStream) -> None:
    assert said(dialect, {"text": " ", "context_id": "a"}) == [opened()], "the blank opens, and is not said"
    assert said(dialect, {"text": "Hello ", "context_id": "a"}) == [wire.Text("a#0", "Hello ")]
    assert said(dialect, {"context_id": "a", "flush": True}) == [wire.Flush("a#0")]
    assert said(dialect, CLOSE) == [wire.End("a#0")], "right behind a flush: the rest is heard"
    assert dialect.output("a#0") == OutputFormat()
    assert told(dialect, alignment("a#0", ("Hello", 0, 0, 100))) == []
    times = {"chars": list("Hello"), "charStartTimesMs": [0, 20, 40, 60, 80], "charDurationsMs": [20] * 5}
    audio = {"audio": b64(b"abcd"), "isFinal": False, "normalizedAlignment": times, "alignment": times}
    named = {"contextId": "a", "context_id": "a"}
    assert told(dialect, Speech("a#0", b"abcd", 0, 100)) == [{**audio, **named}]
    (blank,) = told(dialect, Speech("a#0", b"", 100, 100, is_last=True), wire.Flushed("a#0", "", 100))
    times = {"chars": [" "], "charStartTimesMs": [0], "charDurationsMs": [0]}
    assert blank == {"audio": None, "isFinal": False, "normalizedAlignment": times, "alignment": times, **named}
    assert told(dialect, done("a#0")) == [final()]


def test_livekits_turn(dialect: MultiStream) -> None:
    effects = said(
        dialect,
        {"text": " ", "context_id": "a", "voice_settings": {"stability": 0.5, "speed": 1.1}},
        {"text": "One. ", "context_id": "a", "flush": True},
        {"text": "", "context_id": "a", "flush": True},
        CLOSE,
    )
    assert effects == [
        opened(speed=1.1),
        wire.Text("a#0", "One. "),
        wire.Flush("a#0"),
        wire.End("a#0"),
    ], "of two flushes without text between them one is enough"


def test_a_close_without_a_flush_is_a_barge_in(dialect: MultiStream) -> None:
    said(dialect, {"text": " ", "context_id": "a"}, {"text": "Hello ", "context_id": "a"})
    assert said(dialect, CLOSE) == [wire.Cancel("a#0")]
    assert told(dialect, cancelled("a#0")) == [final()]


def test_a_second_close_is_a_barge_in(dialect: MultiStream) -> None:
    said(dialect, {"text": " ", "context_id": "a"}, {"text": "Hi ", "context_id": "a", "flush": True}, CLOSE)
    assert said(dialect, CLOSE) == [wire.Cancel("a#0")]
    assert told(dialect, cancelled("a#0")) == [final()]
    assert said(dialect, CLOSE) == [], "a third finds nobody"


def flushed_and_closed(dialect: MultiStream, *texts: str) -> None:
    """One after the other, under one name."""
    for text in texts:
        said(dialect, {"text": text, "context_id": "a", "flush": True}, CLOSE)


def test_a_barge_in_silences_all_that_is_heard_under_its_name(dialect: MultiStream) -> None:
    flushed_and_closed(dialect, "One. ", "Two. ", "Three. ")
    said(dialect, {"text": "Other. ", "context_id": "b", "flush": True}, {"context_id": "b", "close_context": True})
    assert told(dialect, done("a#0")) == [final()]
    assert said(dialect, CLOSE) == [wire.Cancel("a#1"), wire.Cancel("a#2")]
    assert said(dialect, CLOSE) == [], "once"
    assert told(dialect, cancelled("a#1"), cancelled("a#2")) == [final(), final()]


def test_a_close_without_a_flush_silences_those_before_it_too(dialect: MultiStream) -> None:
    flushed_and_closed(dialect, "One. ")
    said(dialect, {"text": "Two ", "context_id": "a"})
    assert said(dialect, CLOSE) == [wire.Cancel("a#0"), wire.Cancel("a#1")]


def test_closing_what_failed_silences_nobody(dialect: MultiStream) -> None:
    flushed_and_closed(dialect, "One. ")
    said(dialect, {"text": "Two. ", "context_id": "a"})
    assert told(dialect, error("overloaded", "full", "a#1"))[1:] == [final()]
    assert said(dialect, CLOSE) == [], "it is that one's, and the first is heard on"
    assert said(dialect, CLOSE) == [wire.Cancel("a#0")], "this one is a barge-in"


def test_a_context_without_text_ends_too(dialect: MultiStream) -> None:
    assert said(dialect, {"text": " ", "context_id": "a"}, CLOSE)[1:] == [wire.End("a#0")]
    assert told(dialect, Speech("a#0", b"", 0, 0, is_last=True), done("a#0")) == [final()]


def test_a_name_is_used_again_while_the_old_one_is_heard(dialect: MultiStream) -> None:
    said(dialect, {"text": "One. ", "context_id": "a", "flush": True}, CLOSE)
    assert said(dialect, {"text": "Two. ", "context_id": "a"}) == [opened("a#1"), wire.Text("a#1", "Two. ")]
    assert told(dialect, done("a#0")) == [final()]
    assert said(dialect, {"text": "Three. ", "context_id": "a"}) == [wire.Text("a#1", "Three. ")]


def test_what_opens_no_context(dialect: MultiStream) -> None:
    keepalives = ({"text": ""}, {"text": "", "context_id": "a"}, {"context_id": "a", "flush": True}, CLOSE, {})
    assert said(dialect, *keepalives) == []


def test_an_empty_text_keeps_the_context_that_it_names_open(dialect: MultiStream) -> None:
    said(dialect, {"text": "Hi ", "context_id": "a"})
    assert said(dialect, {"text": "", "context_id": "a"}) == [wire.Text("a#0", "")]
    assert said(dialect, {"text": ""}) == []


def test_a_context_without_a_name_has_one(dialect: MultiStream) -> None:
    assert said(dialect, {"text": "Hi "}) == [opened("default#0"), wire.Text("default#0", "Hi ")]
    assert told(dialect, done("default#0")) == [final("default")]


def test_the_sdks_own_message_names_its_context(dialect: MultiStream) -> None:
    own = WebsocketTtsClientMessageMulti(text="Hi ", context_id="a", flush=True, close_context=True)
    effects = shown(dialect.receive(own.json()))
    assert effects == [opened(), wire.Text("a#0", "Hi "), wire.Flush("a#0"), wire.End("a#0")]


def test_whole_sentences_are_not_kept_waiting() -> None:
    dialect = multi(AUTO)
    said(dialect, {"text": " ", "context_id": "a"})
    sentence = {"text": "Hi.", "context_id": "a", "flush": True}
    assert said(dialect, sentence) == [wire.Text("a#0", "Hi. "), wire.Flush("a#0")], "apart from the next, and once"
    assert said(dialect, {"text": "Ho.\n", "context_id": "a"}) == [wire.Text("a#0", "Ho.\n"), wire.Flush("a#0")]
    assert said(dialect, CLOSE) == [wire.Cancel("a#0")], "our flushes are not the client's"


@pytest.mark.parametrize("settings", [AUTO, PCM])
def test_many_flushes_are_folded_into_few(settings: Settings) -> None:
    dialect = multi(settings)
    sentences = [{"text": f"Number {number}. ", "context_id": "a", "flush": True} for number in range(100)]
    effects = said(dialect, *sentences)
    assert sum(isinstance(effect, wire.Text) for effect in effects) == 100
    assert effects.count(wire.Flush("a#0")) == 32, "far from the limit that a session has"
    flushed = wire.Flushed("a#0", "", 10)
    assert told(dialect, flushed, flushed) == [wire.Flush("a#0")], "for all the rest"
    assert said(dialect, sentences[0])[1:] == [wire.Flush("a#0")]
    said(dialect, sentences[0])
    assert said(dialect, CLOSE) == [wire.End("a#0")]
    assert told(dialect, flushed) == [], "the end speaks it too"


def test_words_end_in_a_blank_where_their_sentence_was_spoken() -> None:
    dialect = multi(AUTO)
    said(dialect, {"text": "Hi — you.", "context_id": "a"}, {"text": "Ho.", "context_id": "a"})
    told(dialect, alignment("a#0", ("Hi", 0, 0, 100), ("you.", 5, 100, 500)))
    (first,) = told(dialect, Speech("a#0", b"ab", 0, 500))
    assert (first["alignment"]["chars"], first["normalizedAlignment"]["chars"]) == (list("Hi — you."), list("Hi you."))
    assert first["alignment"]["charDurationsMs"] == [50, 50, 0, 0, 0, 100, 100, 100, 100]
    (blank,) = told(dialect, wire.Flushed("a#0", "", 500))
    assert (blank["alignment"], blank["audio"]) == (blank["normalizedAlignment"], None)
    assert blank["alignment"]["chars"] == [" "]
    told(dialect, alignment("a#0", ("Ho.", 10, 500, 800)))
    (second,) = told(dialect, Speech("a#0", b"ab", 500, 800))
    assert second["alignment"]["chars"] == list("Ho."), "and no second blank"
    said(dialect, CLOSE)
    (blank, end) = told(dialect, done("a#0"))
    assert (blank["alignment"]["chars"], end) == ([" "], final())


def test_what_an_interruption_left_unsaid_is_not_told(dialect: MultiStream) -> None:
    said(dialect, {"text": "Hi you there ", "context_id": "a"})
    told(dialect, alignment("a#0", ("Hi", 0, 0, 100)), Speech("a#0", b"ab", 0, 100))
    said(dialect, CLOSE)
    assert told(dialect, cancelled("a#0")) == [final()]


def test_times_count_from_where_a_client_takes_them_to() -> None:
    for counts_from_start, start_ms in ((False, 0), (True, 500)):
        dialect = multi(Settings("anna", PCM.output, counts_from_start=counts_from_start))
        said(dialect, {"text": "Hi you ", "context_id": "a"})
        told(dialect, alignment("a#0", ("Hi", 0, 0, 500), ("you", 3, 500, 800)), Speech("a#0", b"ab", 0, 500))
        (audio,) = told(dialect, Speech("a#0", b"ab", 500, 800))
        assert audio["alignment"]["charStartTimesMs"] == [start_ms + ms for ms in (0, 0, 100, 200)]


def test_closing_the_socket_waits_for_what_was_flushed(dialect: MultiStream) -> None:
    said(dialect, {"text": "One. ", "context_id": "a", "flush": True}, {"text": "Two ", "context_id": "b"})
    assert said(dialect, {"close_socket": True}) == [wire.End("a#0"), wire.Cancel("b#1")]
    assert said(dialect, {"text": "Three ", "context_id": "c"}) == []
    assert told(dialect, cancelled("b#1")) == [final("b")]
    assert told(dialect, done("a#0")) == [final("a"), ("hangup", 1000)]


def test_closing_the_socket_lets_those_be_heard_that_were_closed_under_one_name(dialect: MultiStream) -> None:
    flushed_and_closed(dialect, "One. ")
    said(dialect, {"text": "Two ", "context_id": "a"})
    assert said(dialect, {"close_socket": True}) == [wire.Cancel("a#1")]
    assert told(dialect, cancelled("a#1"), done("a#0")) == [final(), final(), ("hangup", 1000)]


def test_closing_a_quiet_socket_closes_it() -> None:
    assert said(multi(), {"close_socket": True}) == [("hangup", 1000)]


def test_words_that_come_after_their_audio_come_by_themselves(dialect: MultiStream) -> None:
    said(dialect, {"text": "Hi you", "context_id": "a"})
    (first,) = told(dialect, Speech("a#0", b"ab", 0, 150))
    assert first["alignment"] is None
    (late,) = told(dialect, alignment("a#0", ("Hi", 0, 0, 100), ("you", 3, 100, 400)))
    assert (late["audio"], late["alignment"]["chars"]) == (None, ["H", "i", " ", "y"])
    (rest, end) = told(dialect, done("a#0"))
    assert (rest["alignment"]["chars"], rest["alignment"]["charStartTimesMs"]) == (["o", "u", " "], [50, 150, 250])
    assert end == final()


def test_a_key_that_was_taken_back_is_told_by_its_own_number(dialect: MultiStream) -> None:
    said(dialect, {"text": "Hi ", "context_id": "a"})
    assert [message.get("code") for message in told(dialect, error("unauthorized", "revoked", "a#0"))] == [401, None]


def test_a_refusal_ends_its_context_and_no_other(dialect: MultiStream) -> None:
    said(dialect, {"text": "Hi ", "context_id": "a"}, {"text": "Ho ", "context_id": "b"})
    refusal = {"error": "overloaded", "message": "full", "code": 503, "contextId": "a", "context_id": "a"}
    assert told(dialect, error("overloaded", "full", "a#0")) == [refusal, final()]
    assert said(dialect, {"text": "there ", "context_id": "a", "flush": True}) == [], "half a sentence is not spoken"
    assert said(dialect, {"text": "there ", "context_id": "b"}) == [wire.Text("b#1", "there ")]
    assert said(dialect, CLOSE, {"text": "Again ", "context_id": "a"})[1:] == [wire.Text("a#2", "Again ")]


def test_an_idle_context_ends_as_one_that_was_closed(dialect: MultiStream) -> None:
    said(dialect, {"text": "Hi ", "context_id": "a"})
    assert told(dialect, error("expired", "idle", "a#0")) == [final()]
    assert said(dialect, {"text": "Hi ", "context_id": "a"})[0] == opened("a#1")


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("{", "not JSON"),
        ("[]", "a message is a JSON object"),
        ('{"text": 1, "context_id": "a"}', "Expected `str | null`, got `int` - at `$.text`"),
        (b"\x00", "a client sends text messages only"),
        ('{"text": "x", "context_id": "%s"}' % ("x" * 300), "context_id is longer than 256 characters"),
    ],
)
def test_what_is_no_message_is_answered(dialect: MultiStream, frame: str | bytes, text: str) -> None:
    (answer,) = shown(dialect.receive(frame))
    assert (answer["error"], answer["code"]) == ("bad_message", 400)
    assert answer["message"].startswith(text)
    assert said(dialect, {"text": "Hi ", "context_id": "a"}), "and nothing is over"


def test_text_that_comes_with_the_end_of_its_context_is_heard(dialect: MultiStream) -> None:
    whole = {"text": "Hi.", **CLOSE}
    assert said(dialect, whole)[1:] == [wire.Text("a#0", "Hi."), wire.Flush("a#0"), wire.End("a#0")]
    said(dialect, {"text": "Hi ", "context_id": "a"})
    assert said(dialect, {"text": "there.", "flush": True, **CLOSE})[1:] == [wire.Flush("a#1"), wire.End("a#1")]
    said(dialect, {"text": "Hi ", "context_id": "a"})
    assert said(dialect, {"text": " ", **CLOSE})[-1] == wire.Cancel("a#2"), "a blank is no text, so this interrupts"


def test_an_error_is_no_larger_than_clients_take(dialect: MultiStream) -> None:
    (answer,) = said(dialect, {"text": "Hi ", "context_id": "x" * 300})
    assert answer["contextId"] == "x" * 300, "or its client could not tell whose it is"
    (answer,) = said(dialect, {"text": "Hi ", "context_id": "x" * 700_000})
    assert (answer["error"], "contextId" in answer) == ("bad_message", False)


def test_a_voice_that_there_is_not_is_the_default() -> None:
    dialect = multi(Settings("21m00Tcm4TlvDq8ikWAM", PCM.output))
    (opening, _) = said(dialect, {"text": "Hi ", "context_id": "a"})
    assert opening.voice is None


def test_an_odd_name_comes_back_as_it_was(dialect: MultiStream) -> None:
    name = "ä\n" + "x" * 200
    (opening, _) = said(dialect, {"text": "Hi ", "context_id": name})
    assert opening.context == "ä?" + "x" * 46 + "#0"
    assert told(dialect, done(opening.context)) == [final(name)]


@pytest.mark.parametrize("dialect", [MultiStream(PCM, find_anna), SingleStream(PCM, find_anna)])
def test_text_that_the_session_refuses_is_not_kept(dialect: MultiStream | SingleStream) -> None:
    told(dialect, replace(READY, limits=replace(READY.limits, context_text_bytes=12)))
    too_long = "äääääää "  # in bytes
    said(dialect, *({"text": text} for text in (" ", "Hi ", too_long, "you")))
    (native,) = dialect._speaker.by_native
    assert dialect._speaker.by_native[native].clock.num_chars == len("Hi you")
    told(dialect, alignment(native, ("Hi", 0, 0, 100), ("you", 3, 100, 400)))
    (audio,) = told(dialect, Speech(native, b"ab", 0, 400))
    assert audio["alignment"]["chars"] == list("Hi you"), "as the session counts them"


# --- stream-input -----------------------------------------------------------------------------------------


@pytest.fixture
def single() -> SingleStream:
    return SingleStream(PCM, find_anna)


def test_the_sdks_realtime_stream(single: SingleStream) -> None:
    init = {"text": " ", "try_trigger_generation": True, "voice_settings": None, "generation_config": {}}
    assert said(single, init) == [opened("default#0")]
    assert said(single, {"text": "Hi ", "try_trigger_generation": True}) == [wire.Text("default#0", "Hi ")]
    assert said(single, {"text": "you ", "flush": True}) == [wire.Text("default#0", "you "), wire.Flush("default#0")]
    assert said(single, {"text": ""}) == [wire.End("default#0")]
    assert said(single, {"text": "late"}) == []
    (audio,) = told(single, Speech("default#0", b"ab", 0, 10))
    assert (audio["audio"], "message" in audio) == (b64(b"ab"), False), "the SDK takes a `message` for an error"
    assert told(single, done("default#0")) == [{"isFinal": True, **NO_AUDIO}, ("hangup", 1000)]


def test_a_stream_folds_its_flushes_too(single: SingleStream) -> None:
    effects = said(single, *({"text": f"Number {number}. ", "flush": True} for number in range(100)))
    assert effects.count(wire.Flush("default#0")) == 32
    assert told(single, wire.Flushed("default#0", "", 10)) == [wire.Flush("default#0")]
    said(single, {"text": "More. ", "flush": True}, {"text": ""})
    assert told(single, wire.Flushed("default#0", "", 10)) == []


def test_a_stream_without_text_ends_in_peace(single: SingleStream) -> None:
    assert said(single, {"text": ""}) == [opened("default#0"), wire.End("default#0")]
    assert told(single, done("default#0")) == [{"isFinal": True, **NO_AUDIO}, ("hangup", 1000)]


def test_what_ends_the_stream_ends_the_socket(single: SingleStream) -> None:
    said(single, {"text": "Hi "})
    refusal = {"message": "full", "error": "overloaded", "code": 503}
    assert told(single, error("overloaded", "full", "default#0")) == [refusal, ("hangup", 1008)]
    assert said(single, {"text": "there "}) == []


def test_a_stream_that_sends_nonsense_is_over(single: SingleStream) -> None:
    (answer, end) = said(single, {"text": []})
    assert (answer["error"], end) == ("bad_message", ("hangup", 1008))
