"""Accepted addresses of a gateway: whole ones."""

import pytest

from voicegate.clients.python.address import stream_url
from voicegate.clients.python.errors import InvalidInput


@pytest.mark.parametrize(
    ("url", "stream"),
    [
        ("http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/stream"),
        ("ws://[::1]:8080/", "ws://[::1]:8080/v1/stream"),
        ("https://user:key@gate.example/voice/", "wss://user:key@gate.example/voice/v1/stream"),
    ],
)
def test_a_hosts_address_is_taken(url: str, stream: str) -> None:
    assert stream_url(url) == stream


@pytest.mark.parametrize("url", ["ws://[::1].evil.example", "ws://[::1]x:8080", "ws://a:b:80", "ws://", "gate.example"])
def test_what_only_begins_as_one_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="address"):
        stream_url(url)
