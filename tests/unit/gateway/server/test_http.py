"""The GET pages, as a function of the request and of what is to be shown."""

import json
from dataclasses import replace

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from voicegate import __version__
from voicegate.engine.interface import EngineInfo, SpeakingMode, VoiceInfo
from voicegate.gateway.server.http import PAGES, Load, Status, respond, too_many_sockets
from voicegate.gateway.server.sites import Sites
from voicegate.gateway.session.quota import Excess, Holding
from voicegate.protocol.messages import STREAM_PATH

pytestmark = pytest.mark.unit

INFO = EngineInfo("m", (VoiceInfo("anna", "warm"),), "anna", (SpeakingMode.AUTO,), 312, 8, 3000)
LOAD = Load(
    sockets=1,
    max_sockets=4,
    contexts=20,
    max_contexts=100,
    utterances=3,
    max_utterances=8,
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


def get(path: str, status: Status, method: str = "GET", **origin: str) -> tuple[int, str, Headers]:
    response = respond(Request(path, Headers(origin), method), status, SITES)
    assert response is not None
    return response.status_code, bytes(response.body).decode(), response.headers


@pytest.mark.parametrize("status", [READY, WARMING_UP, DRAINING, FULL, BUSY])
def test_healthz_is_ok_while_the_process_lives(status: Status) -> None:
    assert get("/healthz", status)[:2] == (200, "ok\n")


def test_readyz() -> None:
    assert get("/readyz", READY)[0] == 200
    assert get("/readyz", FULL)[:2] == (503, "all sockets are taken\n")
    code, body, headers = get("/readyz", WARMING_UP)
    assert (code, body) == (503, "warming up\n")
    assert int(headers["Retry-After"]) > 0


def test_voices() -> None:
    code, body, headers = get("/v1/voices?x=1", READY)
    assert (code, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"default": "anna", "voices": [{"name": "anna", "description": "warm"}]}
    assert get("/v1/voices", WARMING_UP)[0] == 503
    assert get("/v1/voices", DRAINING)[0] == 200


def test_root_and_404_name_all_that_there_is() -> None:
    for path, expected in (("/", 200), ("/nothing", 404), ("/v1/stream/", 404)):
        code, body, _ = get(path, READY)
        assert code == expected
        assert all(known in body for known in (*PAGES, STREAM_PATH))
        assert body.count("\n") == 1
    assert __version__ in get("/", READY)[1]


def test_upgrades_are_let_through_when_there_is_room() -> None:
    assert respond(Request(STREAM_PATH, Headers()), READY, SITES) is None
    assert respond(Request(f"{STREAM_PATH}?key=x", Headers()), READY, SITES) is None
    for status, reason in ((WARMING_UP, "warming up"), (DRAINING, "draining"), (FULL, "taken"), (BUSY, "no room")):
        code, body, headers = get(STREAM_PATH, status)
        assert code == 503
        assert reason in body
        assert int(headers["Retry-After"]) > 0


def test_who_is_turned_away_is_told_when_there_will_be_room() -> None:
    assert get("/readyz", BUSY)[2]["Retry-After"] == "2"
    assert get("/readyz", WARMING_UP)[2]["Retry-After"] == "1"
    nobody_waits = replace(BUSY, load=replace(LOAD, waiting=0, max_waiting=0))
    assert get("/readyz", nobody_waits)[0] == 200


def test_capacity() -> None:
    code, body, headers = get("/v1/capacity", READY)
    assert (code, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {
        "accepts": True,
        "reason": None,
        "sockets": 1,
        "max_sockets": 4,
        "contexts": 20,
        "max_contexts": 100,
        "utterances": 3,
        "max_utterances": 8,
        "waiting": 0,
        "max_waiting": 2,
        "retry_after_ms": 1500,
    }
    for status, reason in ((WARMING_UP, "warming up"), (FULL, "taken"), (BUSY, "no room")):
        code, body, _ = get("/v1/capacity", status)
        answer = json.loads(body)
        assert (code, answer["accepts"]) == (200, False)
        assert reason in answer["reason"]


def test_a_quota_of_the_client_is_its_own_trouble() -> None:
    response = too_many_sockets(Excess(Holding.SOCKET, 3, is_of_owner=True))
    assert (response.status_code, int(response.headers["Retry-After"])) == (429, 1)
    assert b"3 sockets are open from your address" in response.body
    assert too_many_sockets(Excess(Holding.SOCKET, 3, is_of_owner=False)).status_code == 503


def test_a_page_of_another_site_gets_no_socket_and_reads_nothing() -> None:
    code, body, _ = get(STREAM_PATH, READY, Origin="https://evil.example", Host="x")
    assert code == 403
    assert "--allowed-origins" in body
    assert get(STREAM_PATH, WARMING_UP, Origin="https://evil.example", Host="x")[0] == 403
    _, _, headers = get("/v1/voices", READY, Origin="https://evil.example", Host="x")
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["Vary"] == "Origin"


def test_a_listed_page_may_read_answers_refusals_too() -> None:
    for path, status in (("/v1/voices", READY), ("/nothing", READY), (STREAM_PATH, WARMING_UP)):
        _, _, headers = get(path, status, Origin="https://app.example")
        assert headers["Access-Control-Allow-Origin"] == "https://app.example"
    code, body, headers = get("/v1/voices", READY, "OPTIONS", Origin="https://app.example")
    assert (code, body) == (200, "GET, HEAD, OPTIONS\n")
    assert "GET" in headers["Access-Control-Allow-Methods"]
    assert respond(Request(STREAM_PATH, Headers(Origin="https://app.example")), READY, SITES) is None


def test_other_methods() -> None:
    assert get("/healthz", READY, "POST")[0] == 405
    code, body, headers = get("/healthz", READY, "HEAD")
    assert (code, body, headers["Content-Length"]) == (200, "", "3")
