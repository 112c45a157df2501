"""Whose address it is, with proxies between, and with headers that anybody can write."""

from ipaddress import ip_address, ip_network

import pytest

from voicegate.gateway.server.entrance.peers import client_address, owner_of, parse_address
from voicegate.gateway.session.quota import Owner

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        ("203.0.113.7", [], "203.0.113.7"),
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),  # not a proxy of ours: its word counts for nothing
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, 203.0.113.7"], "203.0.113.7"),  # what a client wrote before the proxy did
        ("10.0.0.1", ["198.51.100.1", "203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["203.0.113.7:5123"], "203.0.113.7"),
        ("fd00::1", ["[2001:db8::1]:5123"], "2001:db8::1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", ["[::1].evil.example"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.7, "], "10.0.0.1"),
        ("10.0.0.1", ["", ""], "10.0.0.1"),
    ],
)
def test_client_address(peer: str, forwarded_for: list[str], client: str) -> None:
    assert client_address(ip_address(peer), forwarded_for, TRUSTED) == ip_address(client)


def test_nobody_is_trusted_unless_told() -> None:
    assert client_address(ip_address("127.0.0.1"), ["198.51.100.1"], ()) == ip_address("127.0.0.1")


def test_an_owner_is_an_address_or_one_line_of_ipv6() -> None:
    assert owner_of(ip_address("203.0.113.7")) == Owner("203.0.113.7")
    assert owner_of(ip_address("2001:db8::1")) == owner_of(ip_address("2001:db8::ffff:1")) == Owner("2001:db8::/64")
    assert owner_of(ip_address("2001:db8:0:1::1")) != owner_of(ip_address("2001:db8::1"))


def test_addresses_as_sockets_tell_them() -> None:
    assert parse_address("::ffff:203.0.113.7") == ip_address("203.0.113.7")
    assert parse_address("fe80::1%eth0") == ip_address("fe80::1")
