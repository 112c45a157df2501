"""Warnings at the start of a server that others can reach: what it leaves open. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.entrance.sites import is_loopback

_PER_ADDRESS: Final = ("sockets_per_address", "contexts_per_address", "utterances_per_address")


@dataclass(frozen=True, slots=True)
class Exposure:
    what: str
    remedy: str


def exposures_of(config: GatewayConfig, *, asks_for_keys: bool) -> Iterator[Exposure]:
    if is_loopback(config.host):
        return
    if not asks_for_keys:
        yield Exposure(
            "anybody who reaches this port may use it: it asks for no key",
            "voicegate keys add NAME, and --api-keys-file; or VOICEGATE_API_KEY",
        )
        unlimited = [name for name in _PER_ADDRESS if getattr(config, name) is None]
        if unlimited:
            yield Exposure(
                "one address may take all that this server has: there is no limit to what one holds",
                " ".join(f"--{name.replace('_', '-')}" for name in unlimited)
                + "; behind a proxy --trusted-proxies too, or all clients have the proxy's address",
            )
    if config.tls_cert is None:
        yield Exposure(
            "anybody on the way to this port may read along: keys, text and speech come without TLS",
            "--tls-cert and --tls-key; or a proxy on this machine that ends TLS, and --host 127.0.0.1",
        )
    elif config.wyoming_port is not None:
        yield Exposure(
            "anybody on the way to --wyoming-port may read along: text and speech come without TLS",
            "Wyoming has none: a network that you trust, or a tunnel",
        )
