"""Which path speaks which dialect, and what a URL says."""

import pytest

from tests.unit.protocol.dialects.conversation import alignment, find_anna, said, told
from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.cartesia import Cartesia
from voicegate.protocol.dialects.catalogue import PATHS, find_dialect, has_dialect, idle_s_of
from voicegate.protocol.dialects.deepgram import Deepgram
from voicegate.protocol.dialects.dialect import Dialect, Speech
from voicegate.protocol.dialects.elevenlabs import MultiStream, SingleStream
from voicegate.protocol.dialects.kyutai import Kyutai
from voicegate.protocol.dialects.vllm_omni import VllmOmni
from voicegate.protocol.errors import ProtocolViolation
from voicegate.protocol.formats import Coding, OutputFormat
from voicegate.protocol.messages import STREAM_PATH

SPEAK = {"type": "Speak", "text": "Hi"}


def dialect_at(target: str) -> Dialect:
    make = find_dialect(target)
    assert make is not None
    return make(find_anna)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/text-to-speech/anna/multi-stream-input", MultiStream),
        ("/v1/text-to-speech/anna/stream-input", SingleStream),
        ("/tts/websocket", Cartesia),
        ("/v1/speak", Deepgram),
        ("/v1/audio/speech/stream", VllmOmni),
        ("/api/tts_streaming", Kyutai),
    ],
)
def test_each_path_has_its_dialect(path: str, kind: type) -> None:
    assert isinstance(dialect_at(path), kind)
    assert isinstance(dialect_at(f"{path}?something=unheard-of&api_key=x"), kind)
    assert has_dialect(path)


def test_no_other_path_has_one() -> None:
    for path in (STREAM_PATH, "/", "/v1/text-to-speech/anna", "/v1/text-to-speech/a/b/stream-input", "/tts/websocket/"):
        assert find_dialect(path) is None
        assert not has_dialect(path)
    assert all(has_dialect(path) for path in PATHS)


def test_elevenlabs_url() -> None:
    dialect = dialect_at("/v1/text-to-speech/an%6ea/multi-stream-input?output_format=ulaw_8000&auto_mode=True")
    (opening, _, flush) = said(dialect, {"text": "Hi ", "context_id": "a"})
    assert (opening.voice, flush) == ("anna", wire.Flush("a#0"))
    assert dialect.output("a#0") == OutputFormat(Coding.MULAW, 8_000)
    asked = "language_code=zh&apply_text_normalization=off"
    (opening, *_) = said(dialect_at(f"/v1/text-to-speech/anna/multi-stream-input?{asked}"), {"text": "Hi "})
    assert (opening.language, opening.normalize) == ("zh", False)
    for query, start_ms in (("", 0), ("?sync_alignment=true", 100)):
        livekits = dialect_at(f"/v1/text-to-speech/anna/multi-stream-input{query}")
        said(livekits, {"text": "Hi you ", "context_id": "a"})
        told(livekits, alignment("a#0", ("Hi", 0, 0, 100), ("you", 3, 100, 200)), Speech("a#0", b"ab", 0, 100))
        (audio,) = told(livekits, Speech("a#0", b"ab", 100, 200))
        assert audio["alignment"]["charStartTimesMs"][0] == start_ms
    usual = dialect_at("/v1/text-to-speech/anna/stream-input")
    assert usual.output("") == OutputFormat(Coding.MP3, 44_100, 128_000)


def test_deepgram_url() -> None:
    dialect = dialect_at("/v1/speak?model=anna&encoding=mulaw&speed=1.2")
    (opening, _) = said(dialect, SPEAK)
    assert (opening.voice, opening.speed) == ("anna", 1.2)
    assert dialect.output("turn#0") == OutputFormat(Coding.MULAW, 8_000)
    assert dialect_at("/v1/speak?sample_rate=16000").output("") == OutputFormat(rate_hz=16_000)
    for speed, nearest in (("", 1.0), ("nan", 1.0), ("inf", 2.0), ("-1", 0.5)):
        (opening, _) = said(dialect_at(f"/v1/speak?speed={speed}"), SPEAK)
        assert opening.speed == nearest


def test_kyutai_url() -> None:
    assert dialect_at("/api/tts_streaming").output("") == OutputFormat(Coding.OGG_OPUS)
    assert dialect_at("/api/tts_streaming?format=PcmMessagePack").output("") == OutputFormat(Coding.PCM_F32LE)


@pytest.mark.parametrize(
    ("target", "said_text"),
    [
        ("/v1/text-to-speech/x/stream-input?output_format=pcm_1", "output_format is 'pcm_1'"),
        ("/v1/text-to-speech/x/stream-input?inactivity_timeout=long", "inactivity_timeout is 'long'"),
        ("/v1/speak?encoding=speex", "encoding is 'speex'"),
        ("/v1/speak?sample_rate=many", "sample_rate is 'many'; it must be a number"),
        ("/v1/speak?sample_rate=inf", "sample_rate is 'inf'; it must be a number"),
        ("/v1/speak?encoding=mp3&bit_rate=1", "bit_rate is 1"),
        ("/api/tts_streaming?format=wav", "format is 'wav'"),
    ],
)
def test_a_url_that_asks_amiss(target: str, said_text: str) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        find_dialect(target)
    assert caught.value.message.startswith(said_text)


@pytest.mark.parametrize("path", ["stream-input", "multi-stream-input"])
@pytest.mark.parametrize(("asked", "idle_s"), [("", 20), ("60", 60), ("3600", 180), ("0", 1)])
def test_how_long_elevenlabs_contexts_may_be_idle(path: str, asked: str, idle_s: float) -> None:
    assert idle_s_of(f"/v1/text-to-speech/x/{path}?inactivity_timeout={asked}") == idle_s
    assert idle_s_of(f"/v1/text-to-speech/x/{path}") == 20


def test_other_vendors_urls_say_nothing_of_idle_contexts() -> None:
    assert idle_s_of("/v1/speak?inactivity_timeout=5") is None
