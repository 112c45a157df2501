"""Warnings at the start of a server that others can reach."""

from pathlib import Path
from typing import Any

import pytest

from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.entrance.exposure import exposures_of

TLS: dict[str, Any] = {"tls_cert": Path("c"), "tls_key": Path("k")}
LIMITS: dict[str, Any] = {"sockets_per_address": 8, "contexts_per_address": 32, "utterances_per_address": 4}


@pytest.mark.parametrize(
    ("host", "settings", "asks_for_keys", "said"),
    [
        ("127.0.0.1", {}, False, []),
        ("localhost", {}, False, []),
        ("::1", {}, False, []),
        ("0.0.0.0", {}, False, ["asks for no key", "one address may take all", "without TLS"]),
        ("0.0.0.0", {}, True, ["without TLS"]),
        ("10.0.0.7", TLS | {"sockets_per_address": 8}, False, ["asks for no key", "one address may take all"]),
        ("10.0.0.7", TLS | LIMITS, False, ["asks for no key"]),
        ("gate.example", TLS, True, []),
        ("10.0.0.7", TLS | LIMITS | {"wyoming_port": 0}, False, ["asks for no key", "on the way to --wyoming-port"]),
    ],
)
def test_who_can_be_reached_says_what_is_open(
    host: str, settings: dict[str, Any], asks_for_keys: bool, said: list[str]
) -> None:
    exposures = list(exposures_of(GatewayConfig(host=host, **settings), asks_for_keys=asks_for_keys))
    assert len(exposures) == len(said)
    for exposure, words in zip(exposures, said, strict=True):
        assert words in exposure.what
        assert exposure.remedy
