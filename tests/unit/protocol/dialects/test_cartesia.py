"""Golden conversations of Cartesia's clients: what each frame becomes, and what comes back."""

from typing import Any
from uuid import UUID

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
from voicegate.protocol.dialects.cartesia import Cartesia
from voicegate.protocol.dialects.dialect import Speech
from voicegate.protocol.formats import Coding, OutputFormat

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
DONE = {"type": "done", "context_id": "a", "done": True, "status_code": 200}


def request(
    transcript: str, *, is_continued: bool = True, context_id: str | None = "a", **fields: Any
) -> dict[str, Any]:
    return {
        "context_id": context_id,
        "model_id": "sonic-3",
        "transcript": transcript,
        "voice": {"mode": "id", "id": "anna"},
        "output_format": RAW,
        "language": "en",
        "continue": is_continued,
        **fields,
    }


def opened(native: str = "a#0", **fields: Any) -> wire.Open:
    usual = {"context": native, "voice": "anna", "format": wire.Format(codec="pcm_s16le"), "language": "en"}
    return wire.Open(**{**usual, **fields})


def cartesia() -> Cartesia:
    return Cartesia(find_anna)


@pytest.fixture
def dialect() -> Cartesia:
    return cartesia()


@pytest.mark.parametrize("container", ["wav", "mp3", "ogg"])
def test_a_container_has_no_place_in_a_socket(container: str) -> None:
    (refusal,) = said(cartesia(), request("Hello", output_format={**RAW, "container": container}))
    assert refusal["message"] == f"output_format.container is '{container}'; a socket carries raw audio: it must be raw"


def head(kind: str) -> dict[str, Any]:
    return {"type": kind, "context_id": "a", "done": False, "status_code": 206}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"locale": "en-GB"}, {"language": "en-GB,en"}),
        ({"locale": "en-GB", "language": None}, {"language": "en-GB"}),
        ({"language": None}, {"language": None}),
        ({"normalization": "off"}, {"normalize": False}),
        ({"normalization": "en-IN"}, {}),
        ({"max_buffer_delay_ms": 800}, {"max_buffer_delay_ms": 800}),
        ({"max_buffer_delay_ms": 10**9}, {"max_buffer_delay_ms": wire.MAX_BUFFER_DELAY_MS}),
        ({"max_buffer_delay_ms": -1}, {}),
    ],
)
def test_how_text_is_read(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert said(cartesia(), request("Hello. ", **fields))[0] == opened(**expected)


def test_pipecats_turn(dialect: Cartesia) -> None:
    sentence = request("Hello. ", add_timestamps=True, max_buffer_delay_ms=0)
    assert said(dialect, sentence) == [opened(), wire.Text("a#0", "Hello. "), wire.Flush("a#0")]
    assert said(dialect, request("", is_continued=False)) == [wire.End("a#0")]
    (times,) = told(dialect, alignment("a#0", ("Hello.", 0, 0, 480)))
    words = {"words": ["Hello."], "start": [0.0], "end": [0.48]}
    assert times == {**head("timestamps"), "word_timestamps": words}
    assert told(dialect, Speech("a#0", b"ab", 0, 10)) == [{**head("chunk"), "data": b64(b"ab"), "step_time": 0.0}]
    assert told(dialect, wire.Flushed("a#0", "", 10)) == [], "that flush was ours"
    assert told(dialect, Speech("a#0", b"", 10, 10, is_last=True), done("a#0")) == [DONE]


def test_one_request_is_a_context(dialect: Cartesia) -> None:
    assert said(dialect, request("Hello.", is_continued=False)) == [
        opened(),
        wire.Text("a#0", "Hello."),
        wire.End("a#0"),
    ]
    assert told(dialect, alignment("a#0", ("Hello.", 0, 0, 480))) == [], "nobody asked for times"


def test_nothing_to_say_is_done(dialect: Cartesia) -> None:
    assert said(dialect, request(" ", is_continued=False)) == [opened(), wire.Text("a#0", " "), wire.End("a#0")]
    assert said(dialect, request("", is_continued=False, context_id="b")) == [opened("b#1"), wire.End("b#1")]


def test_flushes_are_counted(dialect: Cartesia) -> None:
    flush = request("", flush=True)
    assert said(dialect, request("One "), flush)[-1] == wire.Flush("a#0", "1")
    assert said(dialect, request("two "), flush)[-1] == wire.Flush("a#0", "2")
    (chunk,) = told(dialect, Speech("a#0", b"ab", 0, 10))
    assert chunk["flush_id"] == 1
    assert told(dialect, wire.Flushed("a#0", "1", 10)) == [{**head("flush_done"), "flush_done": True, "flush_id": 1}]
    (chunk,) = told(dialect, Speech("a#0", b"ab", 10, 20))
    assert chunk["flush_id"] == 2


def test_a_cancel_is_a_barge_in(dialect: Cartesia) -> None:
    said(dialect, request("Hello "))
    assert said(dialect, {"context_id": "a", "cancel": True}) == [wire.Cancel("a#0")]
    assert told(dialect, cancelled("a#0")) == [DONE]
    assert said(dialect, {"context_id": "a", "cancel": True}, {"cancel": True}) == [], "nobody is there"


def test_whole_sentences_are_apart_and_stay_far_from_the_limit_on_flushes(dialect: Cartesia) -> None:
    sentence = request("Hi.", max_buffer_delay_ms=0)
    assert said(dialect, sentence)[1:] == [wire.Text("a#0", "Hi. "), wire.Flush("a#0")]
    for _ in range(100):
        said(dialect, sentence)
    assert said(dialect, sentence) == [wire.Text("a#0", "Hi. ")]
    assert told(dialect, wire.Flushed("a#0", "", 10)) == [wire.Flush("a#0")], "for all the rest"


def test_many_flushes_wait_and_each_has_its_answer(dialect: Cartesia) -> None:
    effects = said(dialect, *(request(f"Number {number}. ", flush=True) for number in range(100)))
    effects += said(dialect, request("The end.", is_continued=False))
    for number in range(1, 101):
        (answer, *more) = told(dialect, wire.Flushed("a#0", str(number), 10))
        assert answer["flush_id"] == number
        effects += more
    expected = [("text", f"Number {number - 1}. ") for number in range(1, 101)]
    assert [("text", effect.text) for effect in effects if isinstance(effect, wire.Text)] == [
        *expected,
        ("text", "The end."),
    ]
    flushes = [effect for effect in effects if isinstance(effect, wire.Flush)]
    assert flushes == [wire.Flush("a#0", str(number)) for number in range(1, 101)]
    assert effects[-1] == wire.End("a#0")


def test_a_cancel_drops_what_waits(dialect: Cartesia) -> None:
    said(dialect, *(request("Hi. ", flush=True) for _ in range(40)), {"context_id": "a", "cancel": True})
    assert told(dialect, cancelled("a#0")) == [DONE]


@pytest.mark.parametrize(
    ("asked", "output"),
    [
        ({"container": "raw", "encoding": "pcm_f32le", "sample_rate": 44100}, OutputFormat(Coding.PCM_F32LE, 44_100)),
        ({"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}, OutputFormat(Coding.MULAW, 8_000)),
    ],
)
def test_formats(dialect: Cartesia, asked: dict[str, Any], output: OutputFormat) -> None:
    said(dialect, {**request("Hi"), "output_format": asked})
    assert dialect.output("a#0") == output


@pytest.mark.parametrize(
    ("fields", "speed"),
    [
        ({}, 1.0),
        ({"generation_config": {"speed": 1.3}}, 1.3),
        ({"generation_config": {"speed": 9}}, 2.0),
        ({"speed": "slow"}, 0.8),
        ({"speed": "normal"}, 1.0),
        ({"speed": "unheard of"}, 1.0),
        ({"generation_config": {"speed": "nan"}}, 1.0),
    ],
)
def test_speeds(fields: dict[str, Any], speed: float) -> None:
    (opening, *_) = said(cartesia(), request("Hi", **fields))
    assert opening.speed == speed


@pytest.mark.parametrize("voice", ["anna", {"mode": "id", "id": "anna"}])
def test_voices_that_there_are(voice: object) -> None:
    assert said(cartesia(), {**request("Hi"), "voice": voice})[0].voice == "anna"


@pytest.mark.parametrize("voice", [None, "a0e99841", {"mode": "embedding", "embedding": [0.1]}])
def test_all_others_are_the_default(voice: object) -> None:
    assert said(cartesia(), {**request("Hi"), "voice": voice})[0].voice is None


def test_refusals_are_errors_in_the_shapes_of_all_versions(dialect: Cartesia) -> None:
    said(dialect, request("Hi "))
    (refusal,) = told(dialect, error("overloaded", "full", "a#0"))
    assert refusal == {
        "type": "error",
        "context_id": "a",
        "done": False,
        "status_code": 503,
        "error_code": "concurrency_limited",
        "title": "Overloaded",
        "message": "full",
        "error": "Overloaded: full",
        "request_id": "a#0",
    }
    assert said(dialect, request("there "), request("", is_continued=False)) == [], "half a sentence is not spoken"
    assert said(dialect, request("Again "))[0] == opened("a#1")


@pytest.mark.parametrize(
    ("code", "status", "is_end"),
    [
        ("overloaded", 503, False),
        ("too_many_contexts", 503, False),
        ("engine_failed", 500, False),
        ("bad_message", 400, True),
        ("expired", 408, True),
    ],
)
def test_only_what_another_try_meets_again_ends_in_peace(code: str, status: int, is_end: bool) -> None:
    """LiveKit's plugins try again what has status 500 and more, or no `done`; others would be waited for forever."""
    dialect = cartesia()
    said(dialect, request("Hi "))
    (slow,) = told(dialect, error("rate_limited", "slower", "a#0", fatal=False))
    assert (slow["status_code"], slow["done"]) == (429, False), "the context goes on"
    (refusal,) = told(dialect, error(code, "why", "a#0"))
    assert (refusal["status_code"], refusal["done"]) == (status, is_end)
    assert refusal["error"] == f"{refusal['title']}: why"


def test_what_comes_for_an_idle_context_that_has_ended_is_spoken() -> None:
    """It ended by our clock, of which a client knows nothing: the text is no rest of what failed."""
    dialect = cartesia()
    said(dialect, request("Hi "))
    (refusal,) = told(dialect, error("expired", "idle", "a#0"))
    assert refusal["error_code"] == "expired"
    assert said(dialect, request("Again ")) == [opened("a#1"), wire.Text("a#1", "Again ")]


def test_what_comes_behind_the_end_is_a_context_of_its_own(dialect: Cartesia) -> None:
    said(dialect, request("One.", is_continued=False))
    bad = request("Bad.", is_continued=False, output_format={**RAW, "container": "wav"})
    assert said(dialect, request("Two.", is_continued=False), request("Three "), bad) == []
    assert told(dialect, done("a#0")) == [DONE, opened("a#1"), wire.Text("a#1", "Two."), wire.End("a#1")]
    (end, *third) = told(dialect, done("a#1"))
    assert end == DONE
    assert third == [opened("a#2"), wire.Text("a#2", "Three "), wire.Text("a#2", "Bad."), wire.End("a#2")]
    said(dialect, bad)
    (end, refusal) = told(dialect, done("a#2"))
    assert (end, refusal["error_code"], refusal["context_id"]) == (DONE, "bad_message", "a")


def test_what_waits_for_a_context_is_bounded(dialect: Cartesia) -> None:
    said(dialect, request("One.", is_continued=False), request("x" * 200_000, is_continued=False))
    for more in (request("x" * 100_000), request("x", language="x" * 100_000)):
        (answer,) = said(dialect, more)
        assert (answer["error_code"], answer["context_id"], answer["done"]) == ("rate_limited", "a", False)
    assert said(dialect, request("x")) == [], "there is room for this one"


def test_the_rest_of_what_failed_is_dropped_with_what_waited(dialect: Cartesia) -> None:
    said(dialect, *(request("Hi. ", flush=True) for _ in range(40)), request("Ho.", is_continued=False))
    said(dialect, request("Next.", is_continued=False))
    (refusal, *next_one) = told(dialect, error("engine_failed", "broken", "a#0"))
    assert refusal["error_code"] == "engine_failed"
    assert next_one == [opened("a#1"), wire.Text("a#1", "Next."), wire.End("a#1")]


@pytest.mark.parametrize(
    ("frame", "name", "text"),
    [
        ("{", None, "not JSON"),
        (b"\x00", None, "a client sends text messages only"),
        ('{"context_id": "a", "transcript": 5}', "a", "Expected `str`"),
        ('{"context_id": 5}', None, "Expected `str | null`"),
        ('{"context_id": "a", "output_format": {"container": "ogg"}}', "a", "output_format.container is 'ogg'"),
        ('{"context_id": "a", "output_format": {"sample_rate": 1}}', "a", "output_format.sample_rate is '1'"),
    ],
)
def test_what_is_no_request_is_answered_with_a_context_id(frame: str | bytes, name: str | None, text: str) -> None:
    (answer,) = shown(cartesia().receive(frame))
    assert (answer["type"], answer["context_id"], answer["done"]) == ("error", name, name is not None)
    assert answer["message"].startswith(text)


def test_a_request_without_a_context_has_one() -> None:
    dialect = Cartesia(find_anna, new_name=lambda: "of-ours")
    assert said(dialect, request("Hi", context_id=None))[-1] == wire.End("of-ours#0"), "which nobody can continue"
    assert told(dialect, done("of-ours#0")) == [{**DONE, "context_id": "of-ours"}]


def test_a_context_that_has_our_name_has_it_alone(dialect: Cartesia) -> None:
    names = {said(dialect, request("Hi", context_id=None))[0].context.partition("#")[0] for _ in range(10)}
    assert len(names) == 10
    assert all(UUID(name).version == 4 for name in names), "which no client comes upon"


def test_troubles_of_the_socket_name_no_context() -> None:
    (answer,) = told(cartesia(), error("rate_limited", "slower", None, fatal=False))
    assert (answer["context_id"], answer["status_code"]) == (None, 429)


def test_an_error_is_no_larger_than_clients_take() -> None:
    (answer,) = said(cartesia(), {"transcript": "Hi.", "context_id": "x" * 700_000})
    assert (answer["error_code"], answer["context_id"]) == ("bad_message", None)
