"""Requests over real sockets for tests, and what a native client hears of the same text."""

import asyncio
import base64
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.integration.wire_client import TIMEOUT_S, connect_to, serving
from voicegate.protocol import messages as wire

PCM = wire.Format(codec="pcm_s16le")


def base_url(stream_url: str) -> str:
    return f"http://{urlsplit(stream_url).netloc}"


async def native_packets(text: str, **fields: Any) -> list[bytes]:
    """From a server of its own, so that the FakeEngine's first utterance is compared with another's first."""
    async with serving() as served, connect_to(served.url) as client:
        await client.speak("a", text, **fields)
        return (await client.until_done("a")).packets


async def native_pcm(text: str, **fields: Any) -> bytes:
    return b"".join(await native_packets(text, format=PCM, **fields))


class RawRequest:
    """One request over a bare socket, whose answer is read as the test likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def post(cls, url: str, path: str, body: dict[str, Any] | bytes, *headers: str) -> "RawRequest":
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        request = await cls.begin(url, path, len(data), *headers)
        request.writer.write(data)
        return request

    @classmethod
    async def begin(cls, url: str, path: str, num_body_bytes: int, *headers: str) -> "RawRequest":
        """Its head alone."""
        address = urlsplit(url)
        request = cls(*await asyncio.open_connection(address.hostname, address.port))
        lines = (f"POST {path} HTTP/1.1", f"Host: {address.netloc}", f"Content-Length: {num_body_bytes}", *headers)
        request.writer.write("\r\n".join((*lines, "", "")).encode())
        return request

    @staticmethod
    async def raw(url: str, request: bytes) -> bytes:
        """All that comes."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(request)
            async with asyncio.timeout(TIMEOUT_S):
                return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(TIMEOUT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.strip().split("\r\n")
        return int(status.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    async def chunk(self) -> bytes:
        """A chunk of a chunked body; b"" is the last. Raises IncompleteReadError where the answer breaks off."""
        async with asyncio.timeout(TIMEOUT_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def body(self) -> bytes:
        body = bytearray()
        while chunk := await self.chunk():
            body += chunk
        return bytes(body)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def post(url: str, path: str, body: dict[str, Any] | bytes, *headers: str) -> tuple[int, dict[str, str], bytes]:
    request = await RawRequest.post(url, path, body, *headers)
    try:
        status, answered = await request.head()
        if answered.get("transfer-encoding") == "chunked":
            return status, answered, await request.body()
        return status, answered, await request.reader.read()
    finally:
        await request.close()


def audio_of_events(body: bytes) -> bytes:
    """Audio of OpenAI's server-sent events."""
    lines = [line for line in body.split(b"\n") if line.startswith(b"data: ") and line != b"data: [DONE]"]
    events = [orjson.loads(line[6:]) for line in lines]
    return b"".join(base64.b64decode(event["audio"]) for event in events if event["type"] == "speech.audio.delta")
