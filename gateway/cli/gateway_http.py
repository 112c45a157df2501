"""Requests of commands to a running gateway, by HTTP; what goes wrong is one line that names the address."""

import argparse
import http.client
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from voicegate.clients.python.address import key_headers, path_beside, stream_url, tls_for, untrusted
from voicegate.clients.python.refusal import answered
from voicegate.gateway.cli.terminal import CommandError
from voicegate.gateway.config import GatewayConfig

_PIECE_BYTES: Final = 1 << 16


class NoAnswer(CommandError):
    """Nor a refusal: another try may get one."""


def default_url(config: GatewayConfig) -> str:
    """The address of a gateway with these settings, for this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    scheme = "ws" if config.tls_cert is None else "wss"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{config.port}"


def add_access(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """Flags for what a gateway may ask of its clients."""
    parser.add_argument("--api-key", default=default, metavar="KEY", help="of the gateway (default: VOICEGATE_API_KEY)")
    signers = "the authority that signs the gateway's certificate, in PEM"
    parser.add_argument("--ca-file", type=Path, default=default, metavar="FILE", help=signers)


def pieces(
    url: str,
    path: str,
    *,
    timeout_s: float,
    method: str = "GET",
    body: bytes | None = None,
    api_key: str | None = None,
    ca_file: Path | None = None,
) -> Iterator[bytes]:
    """The body of a good answer, as it comes; `url` is the stream's. Raises CommandError, NoAnswer, InvalidInput."""
    parts = urlsplit(stream_url(url))
    host, tls, path = parts.hostname or "", tls_for(parts.geturl(), ca_file), path_beside(url, path)
    where = f"{parts.netloc}{path}"
    connection = (
        http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        if tls is None
        else http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls)
    )
    try:
        connection.request(method, path, body, headers=key_headers(api_key))
        response = connection.getresponse()
        if response.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            raise CommandError(answered(where, response.status, response.read(), response.reason))
        while piece := response.read(_PIECE_BYTES):
            yield piece
        if response.length:  # `read` of a number of bytes ends without an error
            raise NoAnswer(f"{where}: the connection ended before the answer did; try again")
    except ssl.SSLCertVerificationError as error:
        raise CommandError(untrusted(where, error)) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoAnswer(f"{where}: cannot connect ({reason}); is the gateway running?") from error
    finally:
        connection.close()
