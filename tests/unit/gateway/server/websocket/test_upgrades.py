"""Which handshakes are let in, and what the others are told."""

import pytest
from msgspec.structs import replace
from websockets.datastructures import Headers
from websockets.http11 import Request

from tests.unit.gateway.server.http.test_pages import BUSY, DRAINING, EVIL, FULL, LOAD, READY, SITES, WARMING_UP
from voicegate.gateway.auth.access import Unauthorized
from voicegate.gateway.server.websocket.upgrades import find_refusal, is_upgrade, reason_of, too_many_sockets
from voicegate.gateway.session.quota import Bound, Excess, Holding
from voicegate.protocol.messages import STREAM_PATH


def handshake(path: str = STREAM_PATH, **headers: str) -> Request:
    return Request(path, Headers(headers), "GET")


def test_is_upgrade() -> None:
    assert is_upgrade(handshake(Upgrade="websocket"))
    assert is_upgrade(handshake(Upgrade="h2c, WebSocket"))
    assert not is_upgrade(handshake())
    assert not is_upgrade(handshake(Upgrade="h2c"))
    assert not is_upgrade(Request(STREAM_PATH, Headers(Upgrade="websocket"), "POST"))


def test_they_are_let_in_when_there_is_room() -> None:
    for path in (STREAM_PATH, f"{STREAM_PATH}?key=x"):
        assert find_refusal(handshake(path), READY, SITES) is None
    for status, reason in ((WARMING_UP, b"warming up"), (DRAINING, b"draining"), (FULL, b"taken"), (BUSY, b"no room")):
        response = find_refusal(handshake(), status, SITES)
        assert response is not None
        assert response.status_code == 503
        assert reason in response.body
        assert int(response.headers["Retry-After"]) > 0


def test_nothing_else_speaks_this_protocol() -> None:
    response = find_refusal(handshake("/v2/stream"), READY, SITES)
    assert response is not None
    assert (response.status_code, STREAM_PATH.encode() in response.body) == (404, True)


def test_who_is_turned_away_is_told_when_there_will_be_room() -> None:
    busy = replace(BUSY, load=replace(LOAD, waiting=2, retry_after_ms=2100))
    response = find_refusal(handshake(), busy, SITES)
    assert response is not None
    assert response.headers["Retry-After"] == "3"


def test_a_page_of_another_site_gets_no_socket() -> None:
    for status in (READY, WARMING_UP):
        response = find_refusal(handshake(**EVIL), status, SITES)
        assert response is not None
        assert (response.status_code, b"--allowed-origins" in response.body) == (403, True)
        assert "Access-Control-Allow-Origin" not in response.headers


def test_a_listed_page_may_read_why() -> None:
    listed = handshake(Origin="https://app.example")
    assert find_refusal(listed, READY, SITES) is None
    response = find_refusal(listed, WARMING_UP, SITES)
    assert response is not None
    assert response.headers["Access-Control-Allow-Origin"] == "https://app.example"


@pytest.mark.parametrize("path", [STREAM_PATH, "/v1/speak", "/tts/websocket"])
def test_the_reason_is_plain_whatever_the_answer_looks_like(path: str) -> None:
    response = find_refusal(handshake(path), READY, SITES, Unauthorized("no key"))
    assert response is not None
    assert (response.status_code, response.headers["Content-Type"]) == (401, "application/json")
    assert reason_of(response) == "no key"


def test_a_quota_of_the_client_is_its_own_trouble() -> None:
    response = too_many_sockets(handshake(), Excess(Holding.SOCKET, 3, Bound.ADDRESS))
    assert (response.status_code, int(response.headers["Retry-After"])) == (429, 1)
    assert b"3 sockets are open from your address" in response.body
    assert too_many_sockets(handshake(), Excess(Holding.SOCKET, 3, Bound.SERVER)).status_code == 503
