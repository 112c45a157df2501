"""A WebSocket to a gateway, from the address to the greeting; or why there is none."""

import asyncio
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus, InvalidURI, WebSocketException
from websockets.typing import Subprotocol

from voicegate.clients.python.address import proxy_for, shown_url, stream_url, tls_for, untrusted
from voicegate.clients.python.errors import ConnectFailed, InvalidInput, MissingDependency
from voicegate.clients.python.refusal import answered
from voicegate.protocol import codec
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.messages import SUBPROTOCOL

# Above what any server of this protocol sends at once: a second of PCM is 48 kB.
_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_SECONDS: Final = re.compile("[0-9]{1,6}")  # of Retry-After, which may be a date, too
# The server, or a proxy before it, is busy, starting or going away.
_TRANSIENT_STATUSES: Final = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class LinkOptions:
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # a key may be among them
    ca_file: Path | None = None  # who signs the server's certificate; None: those whom the system trusts
    connect_timeout_s: float = 10.0
    close_timeout_s: float = 2.0
    # Between two pings, and for the answer to one: a network that has gone silent is noticed within twice that.
    # Lower takes slow networks for dead ones; higher notices later.
    ping_s: float = 10.0
    # Audio of one context that waits to be read: 8 MiB are half an hour of Opus, three minutes of PCM.
    max_unread_bytes: int = 8 * 1024 * 1024


async def dial(url: str, options: LinkOptions) -> tuple[ClientConnection, wire.Ready]:
    """Raises ConnectFailed, InvalidInput, MissingDependency."""
    url = stream_url(url)
    where = shown_url(url)
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            return await _dial(url, options)
    except TimeoutError as error:
        raise ConnectFailed(f"{where}: no answer within {options.connect_timeout_s:g} s", is_transient=True) from error
    except ssl.SSLCertVerificationError as error:
        raise ConnectFailed(untrusted(where, error), is_transient=False) from error
    except ssl.SSLError as error:
        raise ConnectFailed(f"{where}: no TLS there ({error.reason}); try ws://", is_transient=False) from error
    except ImportError as error:  # a proxy of the environment
        raise MissingDependency(f"{where}: {error}; pip install python-socks") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConnectFailed(f"{where}: cannot connect ({reason})", is_transient=True) from error
    except (ConnectionClosed, InvalidMessage) as error:
        raise ConnectFailed(f"{where} hung up: {error}", is_transient=True) from error
    except InvalidStatus as error:
        raise _refusal(where, error) from error
    except InvalidURI as error:
        raise InvalidInput(f"{where}: {error.msg}") from error
    except UnicodeError as error:
        raise InvalidInput(f"{where}: its host is no name that there can be ({error})") from error
    except (WebSocketException, ProtocolViolation) as error:
        raise ConnectFailed(f"{where} does not speak this protocol: {error}", is_transient=False) from error


async def _dial(url: str, options: LinkOptions) -> tuple[ClientConnection, wire.Ready]:
    socket = await connect_socket(
        url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        additional_headers=dict(options.headers),
        compression=None,
        open_timeout=None,
        close_timeout=options.close_timeout_s,
        ping_interval=options.ping_s,
        ping_timeout=options.ping_s,
        max_size=_MAX_MESSAGE_BYTES,
        proxy=proxy_for(url),
        ssl=tls_for(url, options.ca_file),
    )
    try:
        ready = codec.decode_server(await socket.recv())
        if not isinstance(ready, wire.Ready):
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "it did not begin with `ready`")
    except BaseException:
        socket.transport.abort()
        raise
    return socket, ready


def _refusal(where: str, error: InvalidStatus) -> ConnectFailed:
    response = error.response
    retry_after = response.headers.get("Retry-After", "")
    return ConnectFailed(
        answered(where, response.status_code, response.body, response.reason_phrase),
        is_transient=response.status_code in _TRANSIENT_STATUSES,
        status=response.status_code,
        retry_after_ms=int(retry_after) * 1000 if _SECONDS.fullmatch(retry_after) else None,
    )
