"""The OpenAPI document of all that HTTP answers, served at /openapi.json. A test holds its paths against the routes."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from voicegate import __version__
from voicegate.gateway.server.http.reading import MAX_CHARS
from voicegate.gateway.server.status import Load

Node = dict[str, Any]

_JSON: Final = "application/json"
_NULLABLE: Final[Node] = {"type": ["string", "null"]}
_WITHOUT_KEY: Final = "Without a good key, where one is asked for"
_OF_A_BODY: Final = {
    400: "It cannot be done as it was asked",
    401: _WITHOUT_KEY,
    408: "The body did not come in time",
    413: "The body is too large",
    415: "The body is compressed",
}
_AUDIO: Final = ("audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav", "audio/pcm")
_STRING: Final[Node] = {"type": "string"}


def _object(required: tuple[str, ...] = (), **properties: Node) -> Node:
    described: Node = {"type": "object", "properties": properties}
    return {**described, "required": list(required)} if required else described


def _about(description: str, schema: Node | None = None, **more: Any) -> Node:
    return {**(schema or _STRING), "description": description, **more}


def _answers(description: str, *kinds: str, schema: Node | None = None, status: int = 200) -> Node:
    return {str(status): {"description": description, "content": {kind: {"schema": schema or {}} for kind in kinds}}}


def _path_parameter(name: str) -> Node:
    return {"name": name, "in": "path", "required": True, "schema": _STRING}


def _query(name: str, schema: Node | None = None) -> Node:
    return {"name": name, "in": "query", "schema": schema or _STRING}


def _get(summary: str, *kinds: str, schema: Node | None = None, parameters: tuple[Node, ...] = ()) -> Node:
    operation: Node = {"summary": summary, "responses": _answers("It is so", *kinds, schema=schema)}
    return {**operation, "parameters": list(parameters)} if parameters else operation


def _refusals(reasons: Mapping[int, str]) -> Node:
    """By status."""
    answers: Node = {}
    for status, why in sorted(reasons.items()):
        answers |= _answers(why, _JSON, status=status)
    return answers


def _speech(summary: str, body: Node, *kinds: str, parameters: tuple[Node, ...] = ()) -> Node:
    responses = _answers("Audio, while it is made", *kinds, schema={"type": "string", "format": "binary"})
    responses |= _refusals(_OF_A_BODY | {429: "Too much of this client", 503: "No room"})
    return {
        "summary": summary,
        "parameters": list(parameters),
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": responses,
    }


_VOICE: Final = _object(
    name=_STRING,
    description=_STRING,
    language=_about("of its recording; null: not known", _NULLABLE),
    voice_id=_STRING,
    category=_STRING,
    labels={"type": "object", "additionalProperties": _STRING},
)
_ADDED_VOICE: Final = {
    **_VOICE,
    "properties": {
        **_VOICE["properties"],
        "requires_verification": {"type": "boolean"},
        "remark": _about("what was done to the recording, such as silence that was left out; or empty"),
    },
}
_LOAD: Final[Node] = {field.name: {"type": "integer"} for field in msgspec.structs.fields(Load)}
_REPLICA: Final = _object(
    name=_STRING, ready={"type": "boolean"}, utterances={"type": "number"}, room={"type": "number"}
)
_CAPACITY: Final = _object(
    accepts=_about("whether /readyz says 200", {"type": "boolean"}),
    reason=_about("why not", _NULLABLE),
    replicas={"type": "array", "items": _REPLICA},
    **_LOAD,
)
_SPEED: Final = _about("how fast; beyond 0.5 and 2.0 it is spoken at these", {"type": "number"}, default=1.0)
_SEED: Final = _about("equal text, voice and seed sound alike", {"type": "integer", "minimum": 0})
_LANGUAGE: Final = _about("of numbers and signs: a tag such as en-GB; one that is not spoken here is ignored")
_OPENAI_BODY: Final = _object(
    ("input",),
    input=_about("the text"),
    model=_about("ignored: the model that is loaded speaks"),
    voice=_about("one of /v1/voices; another name gets its alias' voice or the default one"),
    instructions=_about("how to speak, in words, where the model follows any", maxLength=200),
    response_format=_about("of the audio", enum=["mp3", "opus", "aac", "flac", "wav", "pcm"], default="mp3"),
    speed={**_SPEED, "minimum": 0.25, "maximum": 4.0},
    stream_format=_about("sse: server-sent events with the audio in base64", enum=["audio", "sse"], default="audio"),
    stream=_about("true: the same as stream_format: sse, as vLLM-Omni has it", {"type": "boolean"}, default=False),
    seed=_SEED,
    language=_LANGUAGE,
    normalize=_about("false: numbers, signs and markup are left to the model", {"type": "boolean"}, default=True),
    pronunciations=_about(
        "what is written, and what is said for it", {"type": "object", "additionalProperties": _STRING}
    ),
    speaker=_about("another name of `voice`"),
    ref_audio=_about("a recording in base64, or a data URL with it, whose voice speaks", {"type": ["string", "array"]}),
    ref_text=_about("what the recording says; without it the voice resembles it less"),
    x_vector_only_mode=_about("true: ref_text is ignored", {"type": "boolean"}, default=False),
)
_ELEVENLABS_BODY: Final = _object(
    ("text",),
    text=_about("the text"),
    voice_settings=_object(speed=_SPEED),
    seed=_SEED,
    language_code=_LANGUAGE,
    apply_text_normalization=_about("off: as normalize: false of /v1/audio/speech", enum=["auto", "on", "off"]),
)
_CARTESIA_BODY: Final = _object(
    ("transcript",),
    transcript=_about("the text"),
    voice=_object(id=_STRING),
    output_format=_object(
        container=_about("of the audio", enum=["raw", "wav", "mp3"], default="raw"),
        encoding=_about("of raw and wav", enum=["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]),
        sample_rate={"type": "integer", "default": 24_000},
        bit_rate={"type": "integer"},
    ),
    generation_config=_object(speed=_SPEED),
    speed=_about("the same as it was, a number or a word such as slow", {"type": ["number", "string"]}),
    language=_LANGUAGE,
    locale=_about("the same with a region, which goes before it"),
    normalization=_about("off: as normalize: false of /v1/audio/speech", default="auto"),
    add_timestamps=_about("of words, in events", {"type": "boolean", "default": False}),
    context_id=_about("comes back in events"),
)
_ELEVENLABS_PARAMETERS: Final = (
    _path_parameter("voice_id"),
    _query("output_format", {**_STRING, "default": "mp3_44100_128"}),
)
_DEEPGRAM_PARAMETERS: Final = tuple(
    _query(name, schema)
    for name, schema in {
        "model": _about("a voice"),
        "encoding": {**_STRING, "default": "mp3"},
        "container": _STRING,
        "sample_rate": {"type": "integer"},
        "bit_rate": {"type": "integer"},
        "speed": {"type": "number"},
    }.items()
)
_PAGES_OF_VOICES: Final = (_query("starting_after"), _query("ending_before"))
_SOUGHT: Final = _about("words in a voice's name or description")
_ENROLMENT: Final = _object(
    ("name", "recording"),
    name=_about("up to 64 letters, digits, _ . and -, 192 bytes"),
    recording=_about("a WAV, FLAC, Ogg or MP3 file of one speaker, best 3 to 10 s", format="binary"),
    transcript=_about("what the recording says; without one the voice resembles it less"),
    description=_STRING,
    replace=_about("a voice of that name", {"type": "boolean", "default": False}),
)


_ENROLMENT_OF_VLLM_OMNI: Final = _object(
    ("name", "audio_sample"),
    name=_ENROLMENT["properties"]["name"],
    audio_sample=_ENROLMENT["properties"]["recording"],
    ref_text=_ENROLMENT["properties"]["transcript"],
    consent=_about("the id of a recording in which the speaker agrees; it is logged"),
    speaker_description=_STRING,
)
_ADDED_FOR_VLLM_OMNI: Final = _object(success={"type": "boolean"}, voice={"type": "object"})


def _enrolment(
    summary: str, *, form_of: Node = _ENROLMENT, answer: Node = _ADDED_VOICE, status: HTTPStatus = HTTPStatus.CREATED
) -> Node:
    form = {"multipart/form-data": {"schema": form_of}}
    responses = _answers("The voice can be used", _JSON, schema=answer, status=status)
    reasons = {
        403: "This server takes no voices, or the key is a token",
        409: "There is a voice of that name, or no room for more",
        422: "No voice can be made of this",
        500: "Its making broke off, or took too long",
        501: "The model has no encoders to make voices with",
        503: "No room for it just now",
    }
    responses |= _refusals(_OF_A_BODY | reasons)
    return {"summary": summary, "requestBody": {"required": True, "content": form}, "responses": responses}


def _taking_away() -> Node:
    operation = _get("Take a voice away", _JSON, parameters=(_path_parameter("name"),))
    reasons = {
        401: _WITHOUT_KEY,
        403: "This server takes no voices, or the key is a token",
        404: "There is none of that name",
        422: "It is the default voice",
    }
    return {**operation, "responses": operation["responses"] | _refusals(reasons)}


def _tokens_of(vendor: str, seconds_field: str | None = None, **answer: Node) -> Node:
    return {**_tokens(seconds_field, **answer), "summary": f"The same, as {vendor} has it"}


def _tokens(seconds_field: str | None = "seconds", **of_answer: Node) -> Node:
    seconds = _about("for which it lets in", {"type": "integer", "minimum": 1, "maximum": 3600}, default=60)
    fields = {} if seconds_field is None else {seconds_field: seconds}
    properties = of_answer or {"token": _STRING, "expires_in": {"type": "integer"}}
    answer = _object(tuple(properties), **properties)
    responses = _answers("A token for a browser", _JSON, schema=answer)
    responses |= _refusals({400: "No key is asked for here", 401: "Without a good key", 403: "Asked for with a token"})
    return {
        "summary": "A short-lived token of the key that asks",
        "requestBody": {"required": False, "content": {_JSON: {"schema": _object((), **fields)}}},
        "responses": responses,
    }


def _reading() -> Node:
    integer = {"type": "integer"}
    clause = {"text": _STRING, "spoken": _STRING, "char_start": integer, "char_end": integer, "pause_ms": integer}
    answer = {"language": _STRING, "clauses": {"type": "array", "items": _object(tuple(clause), **clause)}}
    asked = _object(
        ("text",),
        text={"type": "string", "maxLength": MAX_CHARS},
        language={"type": ["string", "null"]},
        normalize={"type": "boolean"},
        pronunciations={"type": "object", "additionalProperties": _STRING},
    )
    responses = _answers("Clause by clause", _JSON, schema=_object(tuple(answer), **answer))
    return {
        "summary": "What would be said of a text, without saying it",
        "requestBody": {"required": True, "content": {_JSON: {"schema": asked}}},
        "responses": responses | _refusals({400: "It cannot be read as asked", 413: "A longer body than may be"}),
    }


# Where a client may put its key or token, of which one does; docs/protocol.md has them all.
_KEY_PLACES: Final[Node] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "a key, or a token of POST /v1/tokens"},
    "X-API-Key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "xi-api-key": {"type": "apiKey", "in": "header", "name": "xi-api-key"},
    "access_token": {"type": "apiKey", "in": "query", "name": "access_token"},
}


def _secured(paths: Node, open_paths: frozenset[str]) -> Node:
    """Adds keys to the document of a server that asks for them."""
    for path in open_paths.intersection(paths):
        for operation in paths[path].values():
            operation["security"] = []
    return {"components": {"securitySchemes": _KEY_PLACES}, "security": [{place: []} for place in _KEY_PLACES]}


def document(*, asks_for_keys: bool = False, open_paths: frozenset[str] = frozenset()) -> Node:
    """`open_paths`: where no key is asked for."""
    paths = _paths()
    keys = _secured(paths, open_paths) if asks_for_keys else {}
    return {"openapi": "3.1.0", "info": {"title": "voicegate", "version": __version__}, "paths": paths, **keys}


def _paths() -> Node:
    text, name = "text/plain", (_path_parameter("name"),)
    return {
        "/": {"get": _get("The page for browsers, one line for others", "text/html", text)},
        "/healthz": {"get": _get("The process lives", text)},
        "/readyz": {"get": _get("A new socket would be served", text)},
        "/openapi.json": {"get": _get("This document", _JSON)},
        "/v1/capacity": {"get": _get("How much room is left", _JSON, schema=_CAPACITY)},
        "/v1/stream": {"get": {"summary": "The native WebSocket", "responses": {"101": {"description": "It opens"}}}},
        "/v1/models": {"get": _get("Models, as OpenAI lists them", _JSON)},
        "/v1/models/{model}": {"get": _get("One of them", _JSON, parameters=(_path_parameter("model"),))},
        "/v1/audio/models": {"get": _get("Models, as pickers of voices ask for them", _JSON)},
        "/v1/voices/settings/default": {"get": _get("Settings, as ElevenLabs has them", _JSON)},
        "/v1/voices/{name}/settings": {"get": _get("The same, of each voice", _JSON, parameters=name)},
        "/voices": {"get": _get("Voices, as Cartesia lists them", _JSON, parameters=_PAGES_OF_VOICES)},
        "/voices/{name}": {"get": _get("One of them", _JSON, parameters=name)},
        "/v1/audio/voices": {
            "get": _get("Voices, as pickers ask for them", _JSON),
            "post": _enrolment(
                "Make a voice, or replace one, as vLLM-Omni has it",
                form_of=_ENROLMENT_OF_VLLM_OMNI,
                answer=_ADDED_FOR_VLLM_OMNI,
                status=HTTPStatus.OK,
            ),
        },
        "/v1/audio/voices/{name}": {"delete": _taking_away()},
        "/v1/voices": {
            "get": _get("Voices", _JSON, schema=_object(default=_STRING, voices={"type": "array", "items": _VOICE})),
            "post": _enrolment("Make a voice of a recording"),
        },
        "/v2/voices": {
            "get": _get("Voices, as ElevenLabs looks for them", _JSON, parameters=(_query("search", _SOUGHT),))
        },
        "/v1/voices/add": {"post": _enrolment("The same, as ElevenLabs has it; the recording may be named `files`")},
        "/v1/voices/{name}": {
            "get": _get("One voice", _JSON, schema=_VOICE, parameters=name),
            "delete": _taking_away(),
        },
        "/v1/tokens": {"post": _tokens()},
        "/v1/reading": {"post": _reading()},
        "/v1/single-use-token/{kind}": {
            "post": {**_tokens_of("ElevenLabs", token=_STRING), "parameters": [_path_parameter("kind")]}
        },
        "/access-token": {"post": _tokens_of("Cartesia", "expires_in", token=_STRING)},
        "/v1/auth/grant": {
            "post": _tokens_of("Deepgram", "ttl_seconds", access_token=_STRING, expires_in={"type": "integer"})
        },
        **_speech_paths(),
    }


def _speech_paths() -> Node:
    elevenlabs = _ELEVENLABS_PARAMETERS
    return {
        "/v1/audio/speech": {"post": _speech("Speech, as OpenAI has it", _OPENAI_BODY, *_AUDIO, "text/event-stream")},
        "/v1/text-to-speech/{voice_id}": {
            "post": _speech("Speech, as ElevenLabs has it", _ELEVENLABS_BODY, *_AUDIO, parameters=elevenlabs)
        },
        "/v1/text-to-speech/{voice_id}/stream": {
            "post": _speech("The same: both are streamed", _ELEVENLABS_BODY, *_AUDIO, parameters=elevenlabs)
        },
        "/v1/text-to-speech/{voice_id}/with-timestamps": {
            "post": _speech("The same with times of characters", _ELEVENLABS_BODY, _JSON, parameters=elevenlabs)
        },
        "/v1/text-to-speech/{voice_id}/stream/with-timestamps": {
            "post": _speech("The same, line by line", _ELEVENLABS_BODY, "application/x-ndjson", parameters=elevenlabs)
        },
        "/v1/speak": {
            "post": _speech(
                "Speech, as Deepgram has it", _object(("text",), text=_STRING), *_AUDIO, parameters=_DEEPGRAM_PARAMETERS
            )
        },
        "/tts/bytes": {
            "post": _speech("Speech, as Cartesia has it", _CARTESIA_BODY, "audio/wav", "audio/mpeg", "audio/pcm")
        },
        "/tts/sse": {"post": _speech("The same in events, raw audio in base64", _CARTESIA_BODY, "text/event-stream")},
    }
