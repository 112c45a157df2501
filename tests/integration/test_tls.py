"""TLS over real sockets, on asyncio's loop and on uvloop's: speech, requests, slow handshakes, another certificate."""

import asyncio
import contextlib
import http.client
import inspect
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
import uvloop

from tests.integration.resuming_client import resuming
from tests.integration.test_metrics import scrape
from tests.integration.test_process import server_process
from tests.integration.wire_client import TIMEOUT_S, closed_with, connect_to, running, serving
from voicegate.clients.python.client import connect
from voicegate.clients.python.errors import ConnectFailed, InvalidInput
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.cli.main import run
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.server.entrance import tls
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.pages_static import static_file
from voicegate.gateway.server.server import Gateway
from voicegate.gateway.session.quota import Holding
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.usefixtures("no_hang")


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """They differ in what a transport in TLS is, and servers run on uvloop's."""

    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(**fixtures))

    own = inspect.signature(test)
    added = inspect.Parameter("loop_factory", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = own.replace(parameters=[added, *own.parameters.values()])  # type: ignore[attr-defined]
    run.__name__ = test.__name__
    factories = [asyncio.new_event_loop, uvloop.new_event_loop]
    pytest.mark.parametrize("loop_factory", factories, ids=["asyncio", "uvloop"])(run)
    return run


@dataclass
class Authority:
    """Signs certificates, which it writes to the same two files each time."""

    folder: Path
    authority: trustme.CA

    @property
    def settings(self) -> dict[str, Any]:
        return {"tls_cert": self.folder / "cert.pem", "tls_key": self.folder / "key.pem"}

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)

    @property
    def expires_s(self) -> float:
        from cryptography import x509

        first = x509.load_pem_x509_certificates((self.folder / "cert.pem").read_bytes())[0]
        return first.not_valid_after_utc.timestamp()

    def issue(self, *names: str, **options: Any) -> None:
        issued = self.authority.issue_cert(*(names or ("127.0.0.1", "localhost")), **options)
        issued.private_key_pem.write_to_path(self.folder / "key.pem")
        with (self.folder / "cert.pem").open("wb") as file:
            for part in issued.cert_chain_pems:
                file.write(part.bytes())


@pytest.fixture(scope="module")
def signer() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def authority(tmp_path: Path, signer: trustme.CA) -> Authority:
    made = Authority(tmp_path, signer)
    signer.cert_pem.write_to_path(made.ca_file)
    made.issue()
    return made


async def answer_of(url: str, path: str, context: ssl.SSLContext) -> tuple[int, bytes]:
    parts = urlsplit(url)

    def ask() -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(str(parts.hostname), parts.port, timeout=TIMEOUT_S, context=context)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()

    return await asyncio.to_thread(ask)


async def serial_of(url: str, context: ssl.SSLContext) -> object:
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    serial = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    with contextlib.suppress(ssl.SSLError):
        await writer.wait_closed()
    return serial


@dataclass
class Plain:
    """A connection that knows nothing of TLS."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def until_cut(self) -> bytes:
        """Reads until the cut. Returns all before it."""
        heard = b""
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                heard = await self.reader.read()
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
        return heard


async def plain_connection(url: str) -> Plain:
    parts = urlsplit(url)
    return Plain(*await asyncio.open_connection(parts.hostname, parts.port))


# --- the same port, inside TLS ----------------------------------------------------------------------------


@on_both_loops
async def test_sockets_and_requests_share_the_port(authority: Authority) -> None:
    async with serving(**authority.settings) as served:
        assert served.url.startswith("wss://127.0.0.1:")
        async with connect(served.url, ca_file=authority.ca_file) as gate:
            packets = [packet async for packet in gate.speak("Nobody on the way reads along. " * 4)]
        async with serving() as plain, connect(plain.url) as gate:
            assert packets == [packet async for packet in gate.speak("Nobody on the way reads along. " * 4)]
        assert (await answer_of(served.url, "/readyz", authority.context))[0] == 200
        status, page = await answer_of(served.url, "/openapi.json", authority.context)
        assert (status, len(page) > 16 * 1024) == (200, True)


@on_both_loops
async def test_a_session_is_resumed_inside_tls(authority: Authority) -> None:
    async with serving(**authority.settings) as served, resuming(served.url, ssl=authority.context) as client:
        await client.send(wire.Open(context="a"), wire.Text("a", "One two. "))
        await client.until(wire.Opened)
        client.drop()
        await client.come_back()
        await client.send(wire.End("a"))
        await client.until(wire.Done)


@on_both_loops
async def test_a_page_of_this_server_is_its_own_under_https_too(authority: Authority) -> None:
    async with serving(**authority.settings) as served:
        origin = f"https://{urlsplit(served.url).netloc}"
        async with connect_to(served.url, ssl=authority.context, origin=origin) as client:
            await client.speak("a", "Hello.")
            await client.until_done("a")


@on_both_loops
async def test_who_says_goodbye_in_tls_leaves_no_line_in_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(address: tuple[str, int]) -> bytes:
        with (
            socket.create_connection(address, timeout=TIMEOUT_S) as plain,
            authority.context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b"".join(iter(lambda: secure.recv(4096), b""))
            with contextlib.suppress(OSError):  # as curl does: its side ends in TLS too
                secure.unwrap()
            return answer

    async with serving(**authority.settings) as served:
        parts = urlsplit(served.url)
        answer = await asyncio.to_thread(ask, (str(parts.hostname), parts.port or 0))
    assert answer.startswith(b"HTTP/1.1 200")
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@on_both_loops
async def test_old_versions_are_refused(authority: Authority) -> None:
    async with serving(**authority.settings) as served:
        context = authority.context
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.raises(ssl.SSLError):
            await serial_of(served.url, context)
        context = authority.context
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await serial_of(served.url, context)


@on_both_loops
async def test_a_request_without_tls_is_cut_and_harms_nobody(authority: Authority) -> None:
    async with serving(**authority.settings) as served:
        plain = await plain_connection(served.url)
        plain.writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in await plain.until_cut()
        assert (await answer_of(served.url, "/healthz", authority.context))[0] == 200


@on_both_loops
async def test_who_reads_nothing_is_closed_inside_tls_too(authority: Authority) -> None:
    options = {"ssl": authority.context, "max_queue": 1, "ping_interval": None}
    async with serving(write_stall_s=0.2, **authority.settings) as served, connect_to(served.url, **options) as deaf:
        await deaf.speak("deaf", "x" * 4000, format=wire.Format(codec="pcm_s16le"))
        await served.until(lambda engine: len(engine.cancels) > 0)
        assert await closed_with(deaf) in (1008, 1006)


# --- handshakes -------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_file_reaches_who_takes_it_slowly(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is in TLS when the answer ends has to be gone in the time of a goodbye."""
    monkeypatch.setattr(tls, "_SHUTDOWN_TIMEOUT_S", 0.5)
    path = "/player/vendor/opus-decoder/opus-decoder.min.js"
    file = static_file(path)
    assert file is not None

    def take_slowly(address: tuple[str, int]) -> bytes:
        received = bytearray()
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.settimeout(TIMEOUT_S)
            raw.connect(address)
            with authority.context.wrap_socket(raw, server_hostname="localhost") as secured:
                secured.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                while data := secured.recv(4096):
                    received += data
                    time.sleep(0.05)
        return bytes(received)

    async with serving(**authority.settings) as served:
        address = urlsplit(served.url)
        answer = await asyncio.to_thread(take_slowly, (address.hostname or "", address.port or 0))
        assert answer.endswith(b"\r\n\r\n" + file.body)


@on_both_loops
async def test_who_does_not_shake_hands_is_cut(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_HANDSHAKE_TIMEOUT_S", 0.2)
    async with serving(**authority.settings) as served:
        silent, begun = [await plain_connection(served.url) for _ in range(2)]
        begun.writer.write(b"\x16\x03\x01\x02\x00\x01")
        assert [await plain.until_cut() for plain in (silent, begun)] == [b"", b""]


@on_both_loops
async def test_who_does_not_shake_hands_makes_way_for_others(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicegate.gateway.server.listener.SPARE_CONNECTIONS", 4)
    async with serving(max_sockets=1, **authority.settings) as served:
        async with connect_to(served.url, ssl=authority.context):
            silent = [await plain_connection(served.url) for _ in range(8)]
            assert (await answer_of(served.url, "/healthz", authority.context))[0] == 200
            assert [await plain.until_cut() for plain in silent[:4]] == [b""] * 4
        for plain in silent[4:]:
            plain.writer.close()
            await plain.writer.wait_closed()


@on_both_loops
async def test_who_leaves_in_the_middle_of_it_holds_nothing(authority: Authority) -> None:
    async with running(FakeEngine(), **authority.settings) as running_:
        for head in (b"", b"\x16\x03\x01", b"\x16\x03\x01\x00\x05hello", b"\0" * 70_000):
            plain = await plain_connection(running_.gateway.url)
            plain.writer.write(head)
            plain.writer.write_eof()
            await plain.until_cut()
        assert running_.gateway.quotas.in_all(Holding.SOCKET) == 0
        assert (await answer_of(running_.gateway.url, "/healthz", authority.context))[0] == 200


# --- certificates -----------------------------------------------------------------------------------------


@on_both_loops
async def test_another_certificate_without_dropping_anybody(authority: Authority) -> None:
    async with running(FakeEngine(), **authority.settings) as running_:
        gateway = running_.gateway
        async with connect_to(gateway.url, ssl=authority.context) as client:
            first = await serial_of(gateway.url, authority.context)
            authority.issue()
            assert await serial_of(gateway.url, authority.context) == first
            gateway.reload()
            second = await serial_of(gateway.url, authority.context)
            assert second != first
            (authority.folder / "key.pem").write_text("no key")
            gateway.reload()
            assert await serial_of(gateway.url, authority.context) == second
            await client.speak("a", "Hello.")
            await client.until_done("a")


async def test_when_it_expires_and_whether_it_could_be_read_are_metrics(authority: Authority) -> None:
    async with running(FakeEngine(), metrics_port=0, **authority.settings) as running_:
        told = await scrape(running_)
        assert told("certificate_expiry_timestamp_seconds") == authority.expires_s
        assert told("last_reload_successful", file="certificate") == 1
        read_s = told("last_reload_success_timestamp_seconds", file="certificate")
        (authority.folder / "key.pem").write_text("no key")
        running_.gateway.reload()
        told = await scrape(running_)
        assert told("last_reload_successful", file="certificate") == 0
        assert told("last_reload_success_timestamp_seconds", file="certificate") == read_s
        assert told("certificate_expiry_timestamp_seconds") == authority.expires_s, "the old one stays"
        authority.issue(not_after=datetime(2031, 5, 6, tzinfo=UTC))
        running_.gateway.reload()
        told = await scrape(running_)
        assert told("last_reload_successful", file="certificate") == 1
        assert told("certificate_expiry_timestamp_seconds") == datetime(2031, 5, 6, tzinfo=UTC).timestamp()


def other_key(authority: Authority) -> None:
    key = authority.folder / "key.pem"
    authority.authority.issue_cert("x").private_key_pem.write_to_path(key)


def no_file(authority: Authority) -> None:
    (authority.folder / "cert.pem").unlink()


def no_pem(authority: Authority) -> None:
    (authority.folder / "cert.pem").write_text("hello")


def encrypted_key(authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    path = authority.folder / "key.pem"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))


def forbidden_key(authority: Authority) -> None:
    """As certbot's is for a service; root may read all."""
    (authority.folder / "key.pem").chmod(0)
    if os.geteuid() == 0:
        pytest.skip("root may read every file")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (other_key, "no certificate and its key"),
        (no_file, r"the certificate .*cert\.pem cannot be read: No such file"),
        (no_pem, "no certificate and its key"),
        (encrypted_key, "the key is encrypted"),
        (forbidden_key, "this server's user may not"),
    ],
)
def test_a_certificate_that_is_none_is_told_at_the_start(authority: Authority, spoil: Any, reason: str) -> None:
    spoil(authority)
    with pytest.raises(GatewayError, match=reason):
        Gateway(GatewayConfig(port=0, **authority.settings), FakeEngine())


def test_a_certificate_and_its_key_go_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tls_key is unset"):
        GatewayConfig(tls_cert=tmp_path)


@on_both_loops
async def test_a_client_trusts_nobody_unknown(authority: Authority) -> None:
    async with serving(**authority.settings) as served:
        with pytest.raises(ConnectFailed, match="not to be trusted") as caught:
            async with connect(served.url):
                pass
        assert not caught.value.is_transient
        with pytest.raises(InvalidInput, match=r"key\.pem holds no certificates"):
            async with connect(served.url, ca_file=authority.folder / "key.pem"):
                pass


@on_both_loops
async def test_a_client_that_asks_for_tls_where_there_is_none_is_told() -> None:
    async with serving() as served:
        with pytest.raises(ConnectFailed, match="no TLS there") as caught:
            async with connect(served.url.replace("ws://", "wss://")):
                pass
        assert not caught.value.is_transient


@on_both_loops
async def test_a_client_trusts_no_certificate_of_another_name(authority: Authority) -> None:
    authority.issue("gate.example")
    async with serving(**authority.settings) as served:
        with pytest.raises(ConnectFailed, match=r"not to be trusted.*127\.0\.0\.1"):
            async with connect(served.url, ca_file=authority.ca_file):
                pass


async def test_sighup_reads_the_certificate_again(authority: Authority) -> None:
    paths = {name: str(path) for name, path in authority.settings.items()}
    async with server_process(None, **paths) as (process, url, lines):
        first = await serial_of(url, authority.context)
        authority.issue()
        process.send_signal(signal.SIGHUP)
        while await serial_of(url, authority.context) == first:  # noqa: ASYNC110 - the process tells its log alone
            await asyncio.sleep(0.01)
        process.terminate()
    assert process.returncode == 0, lines
    assert "the certificate is read again" in [line["event"] for line in lines]


async def test_commands_take_the_authority_of_the_certificate(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ca = ("--ca-file", str(authority.ca_file))
    async with serving(**authority.settings) as served:
        wav = tmp_path / "said.wav"
        assert await asyncio.to_thread(run, ("say", "Hello", "--url", served.url, *ca, "-o", str(wav))) == 0
        assert wav.stat().st_size > 1000
        assert await asyncio.to_thread(run, ("voices", "list", "--url", served.url, *ca)) == 0
        assert await asyncio.to_thread(run, ("say", "Hello", "--url", served.url, "-o", str(wav))) == 1
        assert "not to be trusted" in capsys.readouterr().err
        for dialect in ("native", "openai"):
            scenario = ("--scenarios", "alone:whole", "--num-alone", "1", "-o", str(tmp_path / dialect))
            status = await asyncio.to_thread(run, ("bench", served.url, *ca, "--dialect", dialect, *scenario))
            assert status == 0
