"""Which pages are let in: the server's own, those that are listed, and none that only looks like it."""

import pytest

from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.server.entrance.sites import Sites, sites_of


def headers(origin: str | None, host: str = "127.0.0.1:8080") -> tuple[list[str], list[str]]:
    return [] if origin is None else [origin], [host]


LOCAL = sites_of(GatewayConfig())
PUBLIC = sites_of(GatewayConfig(host="0.0.0.0"))
NAMED = sites_of(
    GatewayConfig(host="0.0.0.0", allowed_origins="https://app.example, null", allowed_hosts="Gate.example")
)


@pytest.mark.parametrize(
    ("sites", "origin", "host"),
    [
        (LOCAL, None, "127.0.0.1:8080"),
        (LOCAL, None, "evil.example"),  # no browser
        (LOCAL, "http://127.0.0.1:8080", "127.0.0.1:8080"),
        (LOCAL, "http://localhost:8080", "localhost:8080"),
        (LOCAL, "http://LOCALHOST:8080", "LocalHost:8080"),
        (LOCAL, "http://app.localhost", "app.localhost"),
        (LOCAL, "http://[::1]:8080", "[::1]:8080"),
        (LOCAL, "http://192.168.1.5", "192.168.1.5"),
        (PUBLIC, "https://gate.example", "gate.example"),  # TLS ends at a proxy
        (PUBLIC, "https://gate.example", "gate.example:443"),
        (PUBLIC, "http://gate.example:80", "gate.example"),
        (NAMED, "https://gate.example", "gate.example"),
        (NAMED, "https://app.example", "gate.example"),
        (NAMED, "https://app.example", "127.0.0.1:8080"),  # a proxy wrote the host
        (NAMED, "null", "gate.example"),
        (Sites(origins=frozenset({"*"})), "https://evil.example", "127.0.0.1:8080"),
    ],
)
def test_is_let_in(sites: Sites, origin: str | None, host: str) -> None:
    assert sites.refusal(*headers(origin, host)) is None


@pytest.mark.parametrize(
    ("sites", "origin", "host", "part"),
    [
        (LOCAL, "https://evil.example", "127.0.0.1:8080", "pages of https://evil.example"),
        (LOCAL, "http://127.0.0.1:9999", "127.0.0.1:8080", "--allowed-origins"),
        (LOCAL, "https://127.0.0.1", "127.0.0.1:80", "--allowed-origins"),
        (LOCAL, "null", "127.0.0.1:8080", "pages of null"),
        (LOCAL, "", "127.0.0.1:8080", "--allowed-origins"),
        (LOCAL, "http://127.0.0.1:x", "127.0.0.1:8080", "--allowed-origins"),
        (LOCAL, "http://127.0.0.1:8080", "127.0.0.1:x", "--allowed-origins"),
        (LOCAL, "http://[::1", "[::1", "--allowed-origins"),
        (LOCAL, "http://127.0.0.1.evil.example:8080", "127.0.0.1:8080", "--allowed-origins"),
        (LOCAL, "http://user@127.0.0.1:8080.evil.example", "127.0.0.1:8080", "--allowed-origins"),
        (LOCAL, "http://evil.example:8080", "evil.example:8080", "not known as evil.example; --allowed-hosts"),
        (LOCAL, "http://[::1].evil.example:8080", "[::1].evil.example:8080", "--allowed-origins"),
        (LOCAL, "http://[::1]evil:8080", "[::1]evil:8080", "--allowed-origins"),
        (LOCAL, "http://localhost/.evil.example", "localhost/.evil.example", "--allowed-origins"),
        (LOCAL, "http://evil@localhost", "evil@localhost", "--allowed-origins"),
        (LOCAL, "http://localhost#.evil.example", "localhost#.evil.example", "--allowed-origins"),
        (LOCAL, "http://[localhost]", "[localhost]", "--allowed-origins"),
        (LOCAL, "http://evil.example", "[::1].evil.example", "--allowed-origins"),
        (LOCAL, "http://notlocalhost", "notlocalhost", "not known as notlocalhost"),
        (PUBLIC, "https://evil.example", "gate.example", "--allowed-origins"),
        (NAMED, "http://evil.example:8080", "evil.example:8080", "not known as"),
        (NAMED, "http://app.example", "gate.example", "pages of http://app.example"),
        (LOCAL, "https://" + "x" * 10_000, "127.0.0.1:8080", "--allowed-origins"),
    ],
)
def test_is_refused_with_the_remedy(sites: Sites, origin: str, host: str, part: str) -> None:
    refusal = sites.refusal(*headers(origin, host))
    assert refusal is not None
    assert part in refusal
    assert len(refusal) < 200


@pytest.mark.parametrize(
    ("sites", "origin", "host", "is_answered"),
    [
        (LOCAL, None, "127.0.0.1:8080", True),
        (LOCAL, None, "evil.example", False),
        (LOCAL, None, "[::1].evil.example", False),
        (LOCAL, None, "[::1]evil.example:8080", False),
        (LOCAL, None, "localhost/.evil.example", False),
        (LOCAL, None, "evil.example@localhost", False),
        (LOCAL, None, "localhost?.evil.example", False),
        (LOCAL, None, "localhost\\.evil.example", False),
        (LOCAL, None, "loc\talhost", False),
        (LOCAL, None, "localhost:80:80", False),
        (LOCAL, None, "evil.example/.localhost", False),
        (PUBLIC, None, "localhost:80:80", True),
        (LOCAL, None, "[::1", False),
        (LOCAL, None, "", False),
        (LOCAL, "https://evil.example", "localhost", True),  # without leave to read it
        (LOCAL, "http://evil.example", "evil.example", False),
        (PUBLIC, None, "gate.example", True),
        (NAMED, None, "gate.example:8080", True),
        (NAMED, None, "evil.example", False),
        (NAMED, "https://app.example", "inner.name", True),  # a proxy wrote the host
        (Sites(origins=frozenset({"*"})), None, "evil.example", True),
    ],
)
def test_a_get_is_for_a_name_of_ours(sites: Sites, origin: str | None, host: str, is_answered: bool) -> None:
    refusal = sites.refusal_to_read(*headers(origin, host))
    assert (refusal is None) is is_answered
    assert is_answered or (refusal is not None and "--allowed-hosts" in refusal)


def test_a_get_without_a_host_is_no_browsers() -> None:
    assert LOCAL.refusal_to_read([], []) is None


def test_two_headers_are_one_too_many() -> None:
    origins, hosts = headers("http://127.0.0.1:8080")
    assert LOCAL.refusal([*origins, "https://evil.example"], hosts) is not None
    assert LOCAL.refusal(origins, [*hosts, "evil.example"]) is not None


def test_an_answer_is_for_the_pages_that_are_let_in() -> None:
    allowed = NAMED.cors_headers(*headers("https://app.example", "gate.example"))
    assert allowed["Access-Control-Allow-Origin"] == "https://app.example"
    for origin in ("https://evil.example", None):
        assert NAMED.cors_headers(*headers(origin, "gate.example")) == {"Vary": "Origin"}


@pytest.mark.parametrize(
    "origins",
    [
        "app.example",
        "https://app.example/",
        "https://app.example:443",
        "https://*.example",
        "https://a b",
        "localhost:3000",
    ],
)
def test_a_site_that_no_browser_would_name_is_an_error(origins: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed_origins has .*; a site is https://app.example or"):
        sites_of(GatewayConfig(allowed_origins=f"https://ok.example:8443,{origins}"))


@pytest.mark.parametrize("hosts", ["https://gate.example", "gate.example:8080", "gate.example/", "*"])
def test_a_name_that_is_none_is_an_error(hosts: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed_hosts has .*; a name is gate.example"):
        sites_of(GatewayConfig(allowed_hosts=f"ok.example,{hosts}"))


def test_pages_of_extensions_are_sites_too() -> None:
    origin = "chrome-extension://abcdefghijklmnop"
    assert sites_of(GatewayConfig(allowed_origins=origin)).refusal([origin], ["localhost:8080"]) is None
