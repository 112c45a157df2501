"""Lists of voices and models, in the forms in which clients of other vendors ask for them."""

import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate import __version__
from voicegate.engine.interface import EngineInfo, VoiceInfo
from voicegate.gateway.server.http.pages import json, problem, unknown_voice
from voicegate.gateway.server.http.refused import known
from voicegate.gateway.server.http.vendors import vendor_by_headers
from voicegate.gateway.server.status import Status
from voicegate.protocol.dialects.deepgram_speak import DeepgramSpeak
from voicegate.protocol.dialects.elevenlabs_speech import ElevenLabsSpeech
from voicegate.protocol.dialects.openai_speech import MODEL_NAMES

# As ElevenLabs' own pages show them. Only the speed of a request is used.
_SETTINGS: Final = {
    "stability": 0.5,
    "similarity_boost": 0.75,
    "style": 0.0,
    "use_speaker_boost": True,
    "speed": 1.0,
}
# No one knows when a voice was made; Cartesia's clients read a date.
_CREATED_AT: Final = "1970-01-01T00:00:00Z"
_MAX_DIGITS: Final = 18  # Python refuses to read thousands of them


class Lists:
    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self._of(_models)),
            Route("/v1/models/{model}", self._of(_model)),
            Route("/v1/audio/models", self._of(_audio_models)),
            Route("/v1/voices/settings/default", self._of(_default_settings)),
            Route("/v1/voices/{name}/settings", self._of(_settings)),
            Route("/voices", self._of(_cartesia_voices)),
            Route("/voices/{name}", self._of(_cartesia_voice)),
        ]

    def _of(self, answer: Callable[[EngineInfo, Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return answer(known(self._status()), request)

        return endpoint


# --- models -----------------------------------------------------------------------------------------------


def _names(info: EngineInfo) -> list[str]:
    """The model, and the names by which it is asked for by those who know no other."""
    return [info.model, *MODEL_NAMES]


def _models(info: EngineInfo, request: Request) -> Response:
    kind = vendor_by_headers(request.headers)
    if kind is ElevenLabsSpeech:
        return json([_elevenlabs_model(info)])
    if kind is DeepgramSpeak:
        return json({"tts": [_deepgram_model(voice, info) for voice in info.voices], "stt": []})
    return json({"object": "list", "data": [_described(name) for name in _names(info)]})


def _model(info: EngineInfo, request: Request) -> Response:
    name = request.path_params["model"]
    if vendor_by_headers(request.headers) is DeepgramSpeak:
        voice = next((voice for voice in info.voices if voice.name == name), None)
        if voice is not None:
            return json(_deepgram_model(voice, info))
    elif name in _names(info):
        return json(_described(name))
    line = f"no model {name[:80]!r}; there is {info.model}"
    return problem(request, HTTPStatus.NOT_FOUND, "unknown_model", line, field="model")


def _described(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "voicegate"}


def _elevenlabs_model(info: EngineInfo) -> dict[str, object]:
    """The one model: any name will do for its clients."""
    languages = [{"language_id": language, "name": language} for language in info.languages]
    can_nots = ("be_finetuned", "do_voice_conversion", "use_style", "use_speaker_boost")
    return {
        "model_id": info.model,
        "name": info.model,
        "description": "",
        "can_do_text_to_speech": True,
        **{f"can_{name}": False for name in can_nots},
        "serves_pro_voices": False,
        "requires_alpha_access": False,
        "token_cost_factor": 1.0,
        "maximum_text_length_per_request": info.max_text_chars,
        "languages": languages,
    }


def _deepgram_model(voice: VoiceInfo, info: EngineInfo) -> dict[str, object]:
    """There a model is a voice."""
    return {
        "name": voice.name,
        "canonical_name": voice.name,
        "architecture": info.model,
        "languages": [_language_of(voice, info)],
        "version": __version__,
        "uuid": voice.name,
        "metadata": {},
    }


def _language_of(voice: VoiceInfo, info: EngineInfo) -> str:
    return voice.language or info.languages[0]


def _audio_models(info: EngineInfo, _request: Request) -> Response:
    return json({"models": [{"id": info.model}]})


# --- voices -----------------------------------------------------------------------------------------------


def _default_settings(_info: EngineInfo, _request: Request) -> Response:
    return json(_SETTINGS)


def _settings(info: EngineInfo, request: Request) -> Response:
    voice = find_voice(info, request)
    return unknown_voice(request) if voice is None else json(_SETTINGS)


def _cartesia_voices(info: EngineInfo, request: Request) -> Response:
    """A page behind its last one, or before its first: of `limit`, or of all."""
    asked = request.query_params
    found = voices_with(asked.get("q", ""), info)
    names = [voice.name for voice in found]
    after, before = asked.get("starting_after", ""), asked.get("ending_before", "")
    first = names.index(after) + 1 if after in names else 0
    end = names.index(before) if before in names else len(names)
    num_voices = page_size(request, "limit")
    page = found[first:end][-num_voices:] if before else found[first:end][:num_voices]
    return json({"data": [_as_cartesia(voice, info) for voice in page], "has_more": end - first > len(page)})


def voices_with(words: str, info: EngineInfo) -> list[VoiceInfo]:
    """Those whose name or description has them."""
    sought = words.lower()
    return [voice for voice in info.voices if sought in f"{voice.name} {voice.description}".lower()]


def page_size(request: Request, name: str) -> int:
    """How many are asked for by this parameter; all, where it is not there or no count."""
    asked = request.query_params.get(name, "")
    return max(1, int(asked)) if asked.isdecimal() and len(asked) <= _MAX_DIGITS else sys.maxsize


def _cartesia_voice(info: EngineInfo, request: Request) -> Response:
    voice = find_voice(info, request)
    return unknown_voice(request) if voice is None else json(_as_cartesia(voice, info))


def _as_cartesia(voice: VoiceInfo, info: EngineInfo) -> dict[str, object]:
    return {
        "id": voice.name,
        "name": voice.name,
        "tagline": "",
        "description": voice.description,
        "language": _language_of(voice, info),
        "locales": [],
        "access": "public",
        "visibility": "all",
        "is_owner": True,
        "is_public": True,
        "created_at": _CREATED_AT,
    }


def find_voice(info: EngineInfo, request: Request) -> VoiceInfo | None:
    name = request.path_params["name"]
    return next((voice for voice in info.voices if voice.name == name), None)
