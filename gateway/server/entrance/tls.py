"""TLS on the open port: the certificate, read again when told to, and the handshake before a connection's first byte.

It must not know what comes behind the handshake.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Generator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.server.entrance.validity import valid_until
from voicegate.gateway.server.peer_watch import WRITE_LIMIT_BYTES
from voicegate.gateway.setting_files import read_setting_file

# Size of a chain, or a key.
_MAX_PEM_BYTES: Final = 1024 * 1024

# From the connection on. Lower cuts those on bad lines; higher lets those who send nothing keep a place for longer.
_HANDSHAKE_TIMEOUT_S: Final = 10.0
# For the peer's word that it has heard the end; it may be gone.
_SHUTDOWN_TIMEOUT_S: Final = 2.0

T = TypeVar("T")


class Certificate:
    """`context` is for connections from here on, and holds until `valid_until`."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Raises ConfigError."""
        self._chain = chain
        self._key = key
        self.context, self.valid_until = self._read()

    def reload(self) -> None:
        """Raises ConfigError, and then the old one stays."""
        self.context, self.valid_until = self._read()

    def _read(self) -> tuple[ssl.SSLContext, datetime]:
        read = {}
        for path, kind in ((self._chain, "certificate"), (self._key, "key")):
            try:
                # The ssl module does not say which of the two is missing, and waits for a pipe.
                read[kind] = read_setting_file(path, _MAX_PEM_BYTES)
            except PermissionError as error:
                raise ConfigError(
                    f"the {kind} {path} cannot be read: this server's user may not. Give that user a copy of its own, "
                    "as deploy/certbot-deploy-hook.sh does"
                ) from error
            except OSError as error:
                raise ConfigError(f"the {kind} {path} cannot be read: {error.strerror or error}") from error
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # it costs the server more than the client
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._chain, self._key, password=_refuse_password)
            until = valid_until(read["certificate"].decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"{self._chain} and {self._key} are no certificate and its key, both in PEM ({error}); the file of the "
                "certificate holds its whole chain, its own first"
            ) from error
        return context, until


def _refuse_password() -> str:
    raise ValueError("the key is encrypted; a server that starts by itself needs it without a password")


class TlsHandshake(asyncio.Protocol):
    """Meanwhile the connection is there under its plain transport; then `successor` has it, under the other."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        successor: asyncio.Protocol,
        on_arrival: Callable[[asyncio.Transport], None],
        on_departure: Callable[[asyncio.Transport], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._context = context
        self._successor = successor
        self._on_arrival = on_arrival
        self._on_departure = on_departure
        self._on_failure = on_failure
        self._early = bytearray()  # came right behind the handshake
        self._is_secured = False
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        loop = asyncio.get_running_loop()
        plain = cast("asyncio.Transport", transport)  # uvloop's is none by name
        plain.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)  # of what waits, most is to be in the other's
        self._on_arrival(plain)
        starting = loop.start_tls(
            plain,
            self,
            self._context,
            server_side=True,
            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
        )
        self._handshake = loop.create_task(self._shake_hands(plain, _Begun(starting)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._is_secured:
            self._successor.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._early += data

    async def _shake_hands(self, plain: asyncio.Transport, starting: "_Begun[asyncio.Transport | None]") -> None:
        try:
            secured = await starting
        except OSError as error:  # what ssl raises is one too
            plain.abort()
            self._on_failure(str(error) or "it broke off")
            return
        finally:
            self._on_departure(plain)
        if secured is None or self._is_lost:
            return
        self._is_secured = True
        secured.set_protocol(self._successor)
        self._successor.connection_made(secured)
        if self._early:
            self._successor.data_received(bytes(self._early))


class _Begun(Generic[T]):
    """A coroutine that has taken its first step.

    A task would take it in the next turn of the loop, and by then uvloop may have read the peer's first bytes, past
    the one who is to decrypt them.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._awaited = coroutine.send(None)

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            while True:
                try:
                    yield self._awaited
                except BaseException as error:  # noqa: BLE001 - whatever it is, it is the coroutine's
                    self._awaited = self._coroutine.throw(error)
                else:
                    self._awaited = self._coroutine.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
