"""Answers to every request but a synthesis, as a function of the request and of what is to be shown."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.gateway.server.asgi import Answer, ask, stage_of
from voicegate import __version__
from voicegate.engine.interface import EngineInfo, SpeakingMode, VoiceInfo
from voicegate.gateway.auth.access import Access
from voicegate.gateway.auth.keyring import Key, Keyring, digest_of
from voicegate.gateway.server.entrance.sites import Sites
from voicegate.gateway.server.http.app import build_app
from voicegate.gateway.server.http.gatekeeper import Gatekeeper
from voicegate.gateway.server.http.pages import PAGES
from voicegate.gateway.server.http.pages_static import HEADERS, static_file
from voicegate.gateway.server.http.vendors import VENDORS
from voicegate.gateway.server.status import Load, Status
from voicegate.protocol.messages import STREAM_PATH

INFO = EngineInfo("m", (VoiceInfo("anna", "warm"),), "anna", (SpeakingMode.AUTO,), 312, 8, 3000)
LOAD = Load(
    sockets=1,
    max_sockets=4,
    contexts=20,
    max_contexts=100,
    utterances=3,
    max_utterances=8,
    room=5,
    waiting=0,
    max_waiting=2,
    retry_after_ms=1500,
)
READY = Status(unready_reason=None, info=INFO, load=LOAD)
WARMING_UP = Status(unready_reason="warming up", info=None, load=LOAD)
DRAINING = Status(unready_reason="draining", info=INFO, load=LOAD)
FULL = Status(unready_reason=None, info=INFO, load=replace(LOAD, sockets=4))
BUSY = Status(unready_reason=None, info=INFO, load=replace(LOAD, waiting=2))
SITES = Sites(origins=frozenset({"https://app.example"}))
EVIL = {"Origin": "https://evil.example", "Host": "x"}


async def get(path: str, status: Status = READY, method: str = "GET", **headers: str) -> Answer:
    return await ask(build_app(stage_of(status, SITES)), path, method, **headers)


@pytest.mark.parametrize("status", [READY, WARMING_UP, DRAINING, FULL, BUSY])
async def test_healthz_is_ok_while_the_process_lives(status: Status) -> None:
    answer = await get("/healthz", status)
    assert (answer.status, answer.text) == (200, "ok\n")


async def test_healthz_says_that_the_engine_hangs() -> None:
    answer = await get("/healthz", replace(READY, unready_reason="it hangs", hang="it hangs"))
    assert (answer.status, answer.text) == (503, "it hangs\n")


async def test_readyz() -> None:
    assert (await get("/readyz", READY)).status == 200
    full = await get("/readyz", FULL)
    assert (full.status, full.text) == (503, "all sockets are taken\n")
    warming_up = await get("/readyz", WARMING_UP)
    assert (warming_up.status, warming_up.text) == (503, "warming up\n")
    assert warming_up.headers["Retry-After"] == "1"


async def test_who_is_turned_away_is_told_when_there_will_be_room() -> None:
    assert (await get("/readyz", BUSY)).headers["Retry-After"] == "2"
    nobody_waits = replace(BUSY, load=replace(LOAD, waiting=0, max_waiting=0))
    assert (await get("/readyz", nobody_waits)).status == 200


async def test_voices() -> None:
    answer = await get("/v1/voices?x=1", READY)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    anna = {"name": "anna", "description": "warm", "language": None}
    anna |= {"voice_id": "anna", "category": "premade", "labels": {}}
    assert answer.json == {"default": "anna", "voices": [anna], "takes_voices": False}
    assert (await get("/v1/voices/anna")).json == anna
    assert (await get("/v1/voices/bob")).status == 404
    assert (await get("/v1/voices", WARMING_UP)).status == 503
    assert (await get("/v1/voices", DRAINING)).status == 200


async def test_lists_of_other_vendors() -> None:
    models = (await get("/v1/models")).json["data"]
    assert [model["id"] for model in models][:2] == ["m", "gpt-4o-mini-tts"]
    assert (await get("/v1/models/m")).json == models[0]
    assert (await get("/v1/models/n")).status == 404
    assert (await get("/v1/audio/models")).json == {"models": [{"id": "m"}]}
    assert (await get("/v1/audio/voices")).json == {
        "voices": [{"id": "anna", "name": "anna"}],
        "uploaded_voices": [],
    }
    for path in ("/v1/models", "/v1/audio/voices", "/v1/voices/anna"):
        assert (await get(path, WARMING_UP)).status == 503


ELEVENLABS, CARTESIA = {"xi-api-key": "k"}, {"Cartesia-Version": "2026-08-14"}


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (ELEVENLABS, lambda body: body["detail"]["message"]),
        (CARTESIA, lambda body: body["message"]),
        ({"Authorization": "Token k"}, lambda body: body["err_msg"]),
        ({}, lambda body: body["error"]["message"]),
    ],
)
async def test_what_there_is_not_is_told_in_the_form_of_who_asks(headers: dict[str, str], told: Any) -> None:
    assert "no voice 'bob'" in told((await get("/v1/voices/bob", **headers)).json)
    waiting = await get("/v1/voices", WARMING_UP, **headers)
    assert (waiting.status, int(waiting.headers["Retry-After"]) > 0) == (503, True)
    assert "warming up" in (told(waiting.json) if headers else waiting.text)
    nothing = await get("/v1/user", **headers)
    assert nothing.status == 404
    assert "nothing here" in (told(nothing.json) if headers else nothing.text)
    wrong = await get("/v1/models", method="DELETE", **headers)
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert "only GET" in (told(wrong.json) if headers else wrong.text)


async def test_the_document_holds_what_there_is() -> None:
    paths = (await get("/openapi.json")).json["paths"]
    app = build_app(stage_of(READY, SITES))
    assert isinstance(app, Gatekeeper)
    routes = [route for route in app.routes if not route.path.startswith(("/page/", "/player/", "/index.html"))]
    there_are = {(route.path, method) for route in routes for method in route.methods or () if method != "HEAD"}
    assert {(path, method.upper()) for path in paths for method in paths[path]} >= there_are
    assert set(paths) <= {route.path for route in routes}
    assert set(PAGES) <= set(paths)


async def test_the_document_says_where_a_key_goes_if_one_is_asked_for() -> None:
    access = Access(Keyring([Key("kiosk", digest_of("0123456789abcdef"))]), b"")
    app = build_app(stage_of(READY, SITES, access))
    asked = (await ask(app, "/openapi.json")).json
    schemes = asked["components"]["securitySchemes"]
    assert asked["security"] == [{name: []} for name in schemes]
    for path, operations in asked["paths"].items():
        for method, operation in operations.items():
            if "{" in path or path == STREAM_PATH:
                continue
            is_open = (await ask(app, path, method.upper())).status != 401
            assert operation.get("security") == ([] if is_open else None)
    for scheme in schemes.values():
        key = "0123456789abcdef"
        if scheme["type"] == "http":
            answer = await ask(app, "/v1/models", Authorization=f"{scheme['scheme']} {key}")
        elif scheme["in"] == "query":
            answer = await ask(app, f"/v1/models?{scheme['name']}={key}")
        else:
            answer = await ask(app, "/v1/models", **{scheme["name"]: key})
        assert answer.status == 200
    assert "security" not in (await get("/openapi.json")).json


async def test_root_and_404_name_all_that_there_is() -> None:
    for path, expected in (("/", 200), ("/nothing", 404), ("/v1/stream/", 404), ("/player/../LICENSE", 404)):
        answer = await get(path)
        assert answer.status == expected
        assert all(known in answer.text for known in (*PAGES, *VENDORS, STREAM_PATH))
        assert answer.text.count("\n") == 1
    assert __version__ in (await get("/")).text


async def test_capacity() -> None:
    answer = await get("/v1/capacity", READY)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json == {
        "accepts": True,
        "reason": None,
        "sockets": 1,
        "max_sockets": 4,
        "contexts": 20,
        "max_contexts": 100,
        "utterances": 3,
        "max_utterances": 8,
        "room": 5,
        "waiting": 0,
        "max_waiting": 2,
        "retry_after_ms": 1500,
        "replicas": [],
    }
    for status, reason in ((WARMING_UP, "warming up"), (FULL, "taken"), (BUSY, "no room")):
        answer = await get("/v1/capacity", status)
        assert (answer.status, answer.json["accepts"]) == (200, False)
        assert reason in answer.json["reason"]


@pytest.mark.parametrize("path", [STREAM_PATH, "/tts/websocket", "/v1/speak", "/v1/text-to-speech/a/stream-input"])
async def test_a_socket_wants_an_upgrade(path: str) -> None:
    answer = await get(path)
    assert path in answer.text
    assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")


@pytest.mark.parametrize("path", [STREAM_PATH, "/tts/websocket"])
async def test_who_asks_for_an_upgrade_is_told_what_a_handshake_is(path: str) -> None:
    """One that can be read does not come here."""
    answer = await get(path, Upgrade="WebSocket")
    assert answer.status == 400
    assert "8190 bytes" in answer.text


# --- methods and pages of other sites ----------------------------------------------------------------------


async def test_methods() -> None:
    for path, allowed in (("/healthz", "GET, HEAD, OPTIONS"), ("/v1/voices/anna", "DELETE, GET, HEAD, OPTIONS")):
        refused = await get(path, method="POST")
        assert (refused.status, refused.headers["Allow"]) == (405, allowed)
        assert allowed in refused.text
    assert (await get("/healthz", method="HEAD")).headers["Content-Length"] == "3"
    options = await get("/healthz", method="OPTIONS")
    assert (options.status, options.headers["Allow"]) == (200, "GET, HEAD, OPTIONS")
    assert (await get("/nothing", method="POST")).status == 404


@pytest.mark.parametrize("header", [{"Content_Length": "5"}, {"Transfer_Encoding": "chunked"}])
async def test_a_get_has_no_body(header: dict[str, str]) -> None:
    assert (await get("/healthz", **header)).status == 400


async def test_every_answer_ends_its_connection_and_says_whose_it_is() -> None:
    for path in ("/healthz", "/nothing"):
        headers = (await get(path)).headers
        assert (headers["Connection"], headers["Server"]) == ("close", f"voicegate/{__version__}")
        assert headers["Date"].endswith(" GMT")
        assert headers["Cache-Control"] == "no-store"


async def test_a_page_of_another_site_reads_nothing_and_changes_nothing() -> None:
    answer = await get("/v1/voices", **EVIL)
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Vary"] == "Origin"
    for method in ("POST", "PUT", "DELETE"):
        answer = await get("/v1/voices", method=method, **EVIL)
        assert answer.status == 403
        assert "--allowed-origins" in answer.text


async def test_a_listed_page_may_read_answers_refusals_too() -> None:
    for path in ("/v1/voices", "/nothing"):
        answer = await get(path, Origin="https://app.example")
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
    asks = {"Origin": "https://app.example", "Access_Control_Request_Headers": "authorization, content-type"}
    answer = await get("/v1/voices", method="OPTIONS", **asks)
    assert answer.headers["Access-Control-Allow-Headers"] == "authorization, content-type"
    assert "GET" in answer.headers["Access-Control-Allow-Methods"]


# --- the browser client's files ---------------------------------------------------------------------------


async def test_the_player_and_all_that_it_imports_are_there() -> None:
    for name in ("player.js", "worker.js", "worklet.js", "wire.js", "vendor/opus-decoder/opus-decoder.min.js"):
        answer = await get(f"/player/{name}?v=1")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
        assert len(answer.body) == int(answer.headers["Content-Length"]) > 0
        assert {name.lower(): value for name, value in HEADERS.items()}.items() <= dict(answer.headers).items()
    assert b"libopus" in (await get("/player/vendor/opus-decoder/LICENSE")).body


@pytest.mark.parametrize(
    "path",
    ["/player", "/player/", "/player/../../README.md", "/../pyproject.toml", "//etc/passwd", ""],
)
async def test_nothing_else_is(path: str) -> None:
    assert static_file(path) is None
    assert (await get(path)).status == 404


async def test_a_file_that_is_known_is_not_sent_again() -> None:
    etag = (await get("/player/player.js")).headers["ETag"]
    again = await get("/player/player.js", If_None_Match=etag)
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", etag)
    for named in (f"W/{etag}", f'"another", {etag}', f'W/"another",W/{etag}', "*"):  # one by a proxy that compresses
        assert (await get("/player/player.js", If_None_Match=named)).status == 304
    for other in ('"another"', etag[:-1], etag.strip('"')):
        assert (await get("/player/player.js", If_None_Match=other)).status == 200


async def test_the_page_is_for_those_who_read_html() -> None:
    page = await get("/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "Accept" in page.headers["Vary"]
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        assert (await get("/", **headers)).headers["Content-Type"].startswith("text/plain")
