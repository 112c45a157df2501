"""Bounds on a request's size and time, over bare sockets; others are served meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.integration.http_client import RawRequest, post
from tests.integration.raw_client import RawPeer, exchange, get, raw_connection
from tests.integration.wire_client import TIMEOUT_S, Served, serving
from voicegate.gateway.server.http.pages_static import static_file

SPEECH: Final = "/v1/audio/speech"
SAID: Final = {"input": "Hello.", "response_format": "pcm"}
HEAD: Final = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE: Final = "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
MAX_BODY_BYTES: Final = 1_048_576


@contextlib.asynccontextmanager
async def stranger() -> AsyncIterator[tuple[RawPeer, Served]]:
    """A peer to misbehave; that others are served is looked at afterwards, with the peer still there."""
    async with serving() as served, raw_connection(served.url) as peer:
        yield peer, served
        assert (await get(served.url, "/readyz"))[0] == 200
        assert (await post(served.url, SPEECH, SAID))[0] == 200
        assert served.engine.num_live == 0


@pytest.mark.parametrize("request_line", [HEAD, UPGRADE], ids=["a request", "a handshake"])
@pytest.mark.parametrize(
    "lines", ["X: " + "x" * 17_000, "\r\n".join(["X:"] * 140), "Cookie: a\r\n" * 2_000], ids=["long", "many", "both"]
)
async def test_a_head_has_its_size(request_line: str, lines: str) -> None:
    async with stranger() as (peer, _):
        await peer.send(f"{request_line}{lines}\r\n\r\n".encode())
        assert (await peer.read_to_end()).startswith(b"HTTP/1.1 431 ")


async def test_a_head_without_end_is_cut() -> None:
    async with stranger() as (peer, _):
        await peer.send(b"GET /healthz?" + b"x" * 17_000)
        assert (await peer.read_to_end()).startswith(b"HTTP/1.1 431 ")


async def test_a_head_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.entrance.reception._HEAD_TIMEOUT_S", 0.3)
    async with stranger() as (peer, _):
        with contextlib.suppress(OSError):
            for letter in HEAD * 1000:  # a byte at a time does not make it longer
                await peer.send(letter.encode())
                await asyncio.sleep(0.01)
        assert await peer.read_to_end() == b""
        monkeypatch.undo()  # those who come now have the time that a busy machine needs


async def test_a_body_has_its_size() -> None:
    async with serving() as served:
        text = b" " * MAX_BODY_BYTES
        assert (await post(served.url, SPEECH, b'{"input": "x"}' + text[14:]))[0] == 200
        status, _, answer = await post(served.url, SPEECH, b'{"input": "x"}' + text)
        assert (status, b"at most 1048576 bytes" in answer) == (413, True)


async def test_a_body_that_is_announced_too_large_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.connection._DISCARDING_S", 0.05)
    async with stranger() as (peer, _):
        await peer.send(f"{HEAD}Content-Length: 99999999\r\n\r\n".encode())
        assert (await peer.read_to_end()).startswith(b"HTTP/1.1 413 ")


async def test_a_body_without_end_is_refused_and_its_sender_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.connection._DISCARDED_BYTES", 4 * MAX_BODY_BYTES)
    async with stranger() as (peer, _):
        await peer.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        num_sent = 0
        with contextlib.suppress(OSError):
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    await peer.send(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
                    num_sent += 0x8000
        assert num_sent > MAX_BODY_BYTES, "cut only after it was too much"


async def test_a_body_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.bodies._TIMEOUT_S", 0.3)
    async with stranger() as (peer, served):
        await peer.send(f"{HEAD}Content-Length: 50000\r\n\r\n{{".encode())
        dripping = asyncio.create_task(drip(peer))  # which does not make it longer
        answer = await peer.read_to_end()
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not come within" in answer
        monkeypatch.undo()  # those who come now have the time that a busy machine needs
        assert (await post(served.url, "/v1/voices", b""))[0] != 408


async def drip(peer: RawPeer) -> None:
    with contextlib.suppress(OSError):
        while True:
            await peer.send(b" ")
            await asyncio.sleep(0.02)


async def test_a_file_reaches_who_takes_it_slowly() -> None:
    """In one piece it would wait in a connection that is closed already, which has no more than the time of a stall."""
    path = "/player/vendor/opus-decoder/opus-decoder.min.js"
    file = static_file(path)
    assert file is not None
    async with serving(write_stall_s=0.5) as served, raw_connection(served.url) as peer:
        await peer.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await peer.read_slowly(4096, every_s=0.05)
        assert answer.endswith(b"\r\n\r\n" + file.body)


async def test_who_leaves_in_the_middle_of_a_body_leaves_nothing() -> None:
    async with serving() as served:
        request = await RawRequest.begin(served.url, SPEECH, 50)
        request.writer.write(b'{"input":')
        await request.close()
        assert (await post(served.url, SPEECH, SAID))[0] == 200
        assert len(served.engine.requests) == 1


async def test_a_body_that_is_packed_is_told_so() -> None:
    async with serving() as served:
        status, _, answer = await post(served.url, SPEECH, b"\x1f\x8b", "Content-Encoding: gzip")
        assert (status, b"gzip" in answer) == (415, True)
        assert (await post(served.url, SPEECH, SAID, "Content-Encoding: identity"))[0] == 200


async def test_what_a_body_is_called_is_of_no_matter() -> None:
    """curl calls everything a form."""
    async with serving() as served:
        kinds = ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "", "x;;;=\xff")
        for kind in kinds:
            assert (await post(served.url, SPEECH, SAID, f"Content-Type: {kind}"))[0] == 200


async def test_two_lengths_are_one_too_many() -> None:
    async with serving() as served:
        for lines in ("Content-Length: 5\r\nContent-Length: 6", "Transfer-Encoding: gzip, chunked"):
            assert (await exchange(served.url, f"{HEAD}{lines}\r\n\r\nhello"))[0] in (400, 501)


async def test_who_has_no_key_is_told_before_the_body_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.connection._DISCARDING_S", TIMEOUT_S)  # what a busy client sends
    async with serving(api_key="0123456789abcdef") as served, raw_connection(served.url) as peer:
        await peer.send(f"{HEAD}Content-Length: 9000000\r\n\r\n".encode())
        assert (await peer.read_to_end()).startswith(b"HTTP/1.1 401 ")
        for _ in range(90):  # taken none the less: most clients look for an answer once they have sent all
            await peer.send(bytes(100_000))
