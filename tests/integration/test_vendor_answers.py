"""Answers to other vendors' clients beside audio: ids, names of errors, lists by the page, unsupported parts."""

import asyncio
from typing import Any

import cartesia
import openai
import orjson
import pytest
from cartesia import Cartesia
from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError as DeepgramError
from deepgram.environment import DeepgramClientEnvironment
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError as ElevenLabsError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.integration.http_client import RawRequest, base_url
from tests.integration.wire_client import serving
from voicegate.engine.fake.engine import VOICES
from voicegate.protocol.dialects.openai_speech import MODEL_NAMES
from voicegate.protocol.messages import STREAM_PATH

# These packages call what websockets and pydantic have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NAMES = [voice.name for voice in VOICES]
ELEVENLABS, CARTESIA, DEEPGRAM = "xi-api-key: k", "Cartesia-Version: 2026-08-14", "Authorization: Token k"
OPENAI = "x-stainless-lang: js"


async def answer_to(url: str, method: str, path: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", "")
    head, _, body = (await RawRequest.raw(url, "\r\n".join(lines).encode())).partition(b"\r\n\r\n")
    status, *rest = head.decode().split("\r\n")
    return int(status.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}, body


@pytest.mark.parametrize(
    ("method", "path", "header", "own_header"),
    [
        ("GET", "/v1/models", OPENAI, "x-request-id"),
        ("GET", "/v1/models/none", OPENAI, "x-request-id"),
        ("GET", "/v1/nothing", OPENAI, "x-request-id"),
        ("GET", "/v1/voices", ELEVENLABS, "request-id"),
        ("GET", "/v1/user", ELEVENLABS, "request-id"),
        ("DELETE", "/v1/text-to-speech/hum", "X-Nobody: x", "request-id"),
        ("GET", "/voices", CARTESIA, "x-request-id"),
        ("GET", "/v1/models", DEEPGRAM, "dg-request-id"),
        ("PUT", "/v1/speak", "X-Nobody: x", "dg-request-id"),
        ("GET", "/healthz", "X-Nobody: x", "x-request-id"),
        ("OPTIONS", "/v1/speak", "X-Nobody: x", "x-request-id"),
        ("GET", "/v1/voices", "Origin: https://evil.example", "x-request-id"),
    ],
)
async def test_every_answer_has_an_id(method: str, path: str, header: str, own_header: str) -> None:
    async with serving() as served:
        _, headers, _ = await answer_to(served.url, method, path, header)
    assert len(headers["x-request-id"]) == 16
    assert headers[own_header] == headers["x-request-id"]


@pytest.mark.parametrize("path", [STREAM_PATH, "/v1/speak", "/tts/websocket", "/v1/nothing"])
async def test_every_handshake_has_an_id(path: str) -> None:
    async with serving() as served:
        url = served.url.removesuffix(STREAM_PATH) + path
        try:
            async with connect(url) as socket:
                response = socket.response
        except InvalidStatus as refused:
            response = refused.response
    assert response is not None
    assert len(response.headers["X-Request-Id"]) == 16


def openai_form(body: Any) -> str:
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return str(body["error"]["message"])


def elevenlabs_form(body: Any) -> str:
    return str(body["detail"]["message"])


def cartesia_form(body: Any) -> str:
    assert body["request_id"]
    return str(body["message"])


def deepgram_form(body: Any) -> str:
    assert body["request_id"]
    return str(body["err_msg"])


@pytest.mark.parametrize(
    ("method", "path", "form"),
    [
        ("GET", "/v1/audio/speech", openai_form),
        ("POST", "/v1/audio/transcriptions", openai_form),
        ("DELETE", "/v1/models", openai_form),
        ("GET", "/v1/text-to-speech/hum", elevenlabs_form),
        ("POST", "/v1/text-to-speech/hum/none", elevenlabs_form),
        ("POST", "/v1/text-to-dialogue", elevenlabs_form),
        ("PUT", "/v2/voices", elevenlabs_form),
        ("GET", "/tts/bytes", cartesia_form),
        ("POST", "/tts/none", cartesia_form),
        ("DELETE", "/voices", cartesia_form),
        ("PUT", "/v1/speak", deepgram_form),
        ("POST", "/v2/speak", deepgram_form),
        ("GET", "/v1/auth/grant", deepgram_form),
    ],
)
async def test_what_there_is_not_is_told_in_the_form_of_the_path(method: str, path: str, form: Any) -> None:
    async with serving() as served:
        for slash in ("", "/"):
            status, headers, body = await answer_to(served.url, method, f"{path}{slash}")
            assert (status in (404, 405), headers["content-type"]) == (True, "application/json")
            assert "here" in form(orjson.loads(body))


@pytest.mark.parametrize("path", ["/v2/voices?page_size=", "/voices?limit="])
async def test_a_page_of_any_number_of_voices_is_answered(path: str) -> None:
    async with serving() as served:
        status, _, body = await answer_to(served.url, "GET", path + "9" * 5000)
    assert status == 200
    assert not orjson.loads(body)["has_more"]


async def test_a_handshake_that_is_refused_is_told_in_the_form_of_the_path() -> None:
    async with serving() as served:
        base = served.url.removesuffix(STREAM_PATH)
        for path, form in (("/v2/speak", deepgram_form), ("/v1/text-to-dialogue/multi-stream-input", elevenlabs_form)):
            with pytest.raises(InvalidStatus) as caught:
                async with connect(base + path):
                    pass
            assert caught.value.response.status_code == 404
            body = orjson.loads(caught.value.response.body or b"")
            assert "nothing here" in (form(body) if form is elevenlabs_form else body["err_msg"])
        async with connect(f"{base}/v1/stream/"), connect(f"{base}//v1/speak/?model=hum"):
            pass


def ask_all(url: str) -> None:
    here = base_url(url)
    with openai.OpenAI(api_key="none", base_url=f"{here}/v1/") as client:
        assert [model.id for model in client.models.list()] == ["fake", *MODEL_NAMES]
        assert client.models.retrieve("tts-1").id == "tts-1"
        with pytest.raises(openai.NotFoundError) as missing:
            client.models.retrieve("gpt-99")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        assert missing.value.request_id
    with Cartesia(api_key="none", base_url=f"{here}/") as client:
        status = client.get_status()
        assert (status.ok, status.version) == (True, "2026-08-14")
        assert [voice.id for voice in client.voices.list(limit=1)] == NAMES, "page after page"
        assert client.voices.list(limit=1).data[0].id == NAMES[0]
        assert (client.voices.get(NAMES[1]).name, client.voices.get(NAMES[1]).language) == (NAMES[1], "en")
        assert [voice.id for voice in client.voices.list(limit=1, ending_before=NAMES[1]).data] == NAMES[:1]
        assert [voice.id for voice in client.voices.list(q=NAMES[1].upper()).data] == [NAMES[1]]
        with pytest.raises(cartesia.NotFoundError, match="voice_not_found"):
            client.voices.get("nobody")
    eleven = ElevenLabs(api_key="none", base_url=here)
    first = eleven.voices.search(page_size=1)
    assert ([voice.voice_id for voice in first.voices], first.has_more, first.total_count) == (NAMES[:1], True, 2)
    second = eleven.voices.search(page_size=1, next_page_token=first.next_page_token)
    assert ([voice.voice_id for voice in second.voices], second.has_more) == (NAMES[1:], False)
    assert [model.model_id for model in eleven.models.list()] == ["fake"]
    assert eleven.voices.settings.get(NAMES[0]).speed == eleven.voices.settings.get_default().speed == 1.0
    for ask, name in (
        (lambda: eleven.voices.get("nobody"), "voice_not_found"),
        (lambda: eleven.voices.settings.get("nobody"), "voice_not_found"),
        (eleven.user.get, "unsupported"),
    ):
        with pytest.raises(ElevenLabsError) as absent:
            ask()
        assert (absent.value.status_code, absent.value.body["detail"]["status"]) == (404, name)
    places = {"base": here, "production": here, "agent": here, "agent_rest": here}
    deepgram = DeepgramClient(api_key="none", environment=DeepgramClientEnvironment(**places))
    models = deepgram.manage.v1.models
    (model, *_), no_ears = models.list().tts, models.list().stt
    assert no_ears == []
    assert models.get(model.uuid_).name == NAMES[0]
    with pytest.raises(DeepgramError) as unknown:
        models.get("nobody")
    assert unknown.value.status_code == 404
    with deepgram.speak.v1.audio.with_raw_response.generate(text="Hi.", model=NAMES[1]) as spoken:
        assert spoken.headers["dg-model-name"] == NAMES[1]
        assert spoken.headers["dg-request-id"] == spoken.headers["x-request-id"]
        assert list(spoken.data)


async def test_what_the_packages_read() -> None:
    async with serving() as served:
        await asyncio.to_thread(ask_all, served.url)
