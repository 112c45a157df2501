"""Reading a request's words on its sender."""

import pytest
from websockets.datastructures import Headers

from voicegate.gateway.server.entrance.callers import Caller, caller_of


def caller(target: str = "/v1/stream", **headers: str) -> Caller:
    return caller_of(Headers({name.replace("_", "-"): value for name, value in headers.items()}).get_all, target)


def test_who_says_nothing_is_nobody() -> None:
    assert caller() == Caller()


@pytest.mark.parametrize(
    "headers",
    [
        {"xi_api_key": "k"},
        {"X_API_Key": "k"},
        {"kyutai_api_key": "k"},
        {"Authorization": "Bearer k"},
        {"Authorization": "Token k"},
        {"Authorization": "token  k"},
        {"Sec_WebSocket_Protocol": "token, k"},
    ],
)
def test_each_vendors_key_is_found(headers: dict[str, str]) -> None:
    assert caller(**headers).keys == ("k",)


def test_keys_in_a_url() -> None:
    for name in ("api_key", "access_token", "single_use_token", "auth_id", "xi-api-key", "authorization"):
        assert caller(f"/tts/websocket?cartesia_version=1&{name}=k").keys == ("k",)
    assert caller("/v1/text-to-speech/anna/stream-input?authorization=Bearer%20k").keys == ("k",)


def test_what_is_no_key() -> None:
    assert caller(Authorization="Basic dTpw", Sec_WebSocket_Protocol="voicegate.v1, other").keys == ()


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(caller(xi_api_key="secret"))


def test_a_tag_for_the_log() -> None:
    assert caller(X_Client_Tag="kiosk 7").tag == "kiosk 7"
    assert caller("/v1/stream?client_tag=kiosk%207").tag == "kiosk 7"
    assert caller("/v1/stream?client_tag=a%0Ab" + "x" * 100).tag == "a?b" + "x" * 61


def test_a_key_that_is_named_often_is_one() -> None:
    assert caller(Sec_WebSocket_Protocol="token, bearer, token, bearer, token, k").keys == ("bearer", "token", "k")
