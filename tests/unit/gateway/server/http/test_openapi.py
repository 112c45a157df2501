"""/openapi.json against the code: what a client generated of it sends is read, and what it is answered it can read."""

from typing import Any

import msgspec
import pytest

from tests.unit.gateway.server.asgi import ask, stage_of
from voicegate.engine.interface import EngineInfo, SpeakingMode, VoiceInfo
from voicegate.gateway.server.entrance.sites import Sites
from voicegate.gateway.server.http.app import build_app
from voicegate.gateway.server.http.openapi import document
from voicegate.gateway.server.http.reading import MAX_CHARS
from voicegate.gateway.server.status import Status
from voicegate.protocol.dialects import cartesia_speech, deepgram_speak, elevenlabs_speech, openai_speech
from voicegate.protocol.dialects.reference import OTHER_REFERENCES

VOICES = (VoiceInfo("anna", "warm", "en"), VoiceInfo("bob", "cool"))  # of bob nobody knows the language
READY = Status(None, EngineInfo("m", VOICES, "anna", (SpeakingMode.AUTO,), 312, 8, 3000))
PATHS = document()["paths"]
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """As far as the document goes: types, fields that are there, items."""
    kinds = schema.get("type", list(TYPES))
    if not any(isinstance(value, TYPES[kind]) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if isinstance(value, list):
        return all(fits(item, schema.get("items", {})) for item in value)
    if isinstance(value, dict):
        described = schema.get("properties", {})
        more = schema.get("additionalProperties", {})
        return set(schema.get("required", ())) <= set(value) and all(
            fits(item, described.get(name, more)) for name, item in value.items()
        )
    return True


def body_of(path: str) -> dict[str, Any]:
    schema: dict[str, Any] = PATHS[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema


def fields_of(kind: Any) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/audio/speech", openai_speech._Body),
        ("/v1/text-to-speech/{voice_id}", elevenlabs_speech._Body),
        ("/v1/text-to-speech/{voice_id}/stream/with-timestamps", elevenlabs_speech._Body),
        ("/tts/bytes", cartesia_speech._Body),
        ("/tts/sse", cartesia_speech._Body),
        ("/v1/speak", deepgram_speak._Body),
    ],
)
def test_a_body_has_the_fields_that_are_read(path: str, kind: Any) -> None:
    described = body_of(path)
    assert set(described["properties"]) == fields_of(kind) - set(OTHER_REFERENCES), "which are refused"
    needed = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    assert set(described["required"]) == needed


def test_so_has_what_is_in_it_and_in_an_address() -> None:
    assert set(body_of("/tts/bytes")["properties"]["output_format"]["properties"]) == fields_of(
        cartesia_speech._OutputFormat
    )
    parameters = PATHS["/v1/speak"]["post"]["parameters"]
    assert {each["name"] for each in parameters} == fields_of(deepgram_speak._Query) - {"callback"}, "which is refused"


def test_a_text_to_be_read_may_be_as_long_as_it_says() -> None:
    assert body_of("/v1/reading")["properties"]["text"]["maxLength"] == MAX_CHARS


JSON_PATHS = [
    path
    for path, methods in PATHS.items()
    if not path.startswith("/v1/audio/jobs")  # of which tests/integration/test_jobs.py has some
    and "application/json" in methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
]


@pytest.mark.parametrize("path", JSON_PATHS)
async def test_an_answer_is_as_described(path: str) -> None:
    schema = PATHS[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    app = build_app(stage_of(READY, Sites()))
    for name in ("anna", "bob"):
        answer = await ask(app, path.replace("{name}", name).replace("{model}", "m"))
        assert answer.status == 200
        assert fits(answer.json, schema), answer.json
    if schema.get("properties"):
        assert set(schema["properties"]) == set(answer.json)


def test_every_parameter_of_a_path_is_described() -> None:
    for path, methods in PATHS.items():
        for method, operation in methods.items():
            inside = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
            assert inside == {part[1:-1] for part in path.split("/") if part.startswith("{")}, (method, path)
