"""Answers of other servers."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from voicegate.clients.bench.inquiry import describe
from voicegate.clients.bench.plan import Target
from voicegate.clients.bench.session import left_behind


class Stranger(HTTPServer):
    body = b""


class Handler(BaseHTTPRequestHandler):
    server: Stranger
    server_version, sys_version = "stranger/1", ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with Stranger(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"data": [{"id": "theirs"}, {"id": "other"}]}', "theirs"),
        (b'{"data": [{"id": "' + b"x" * 1000 + b'"}]}', "x" * 200),
        (b'{"data": [{"id": 7}]}', None),
        (b'{"data": []}', None),
        (b'[{"model_id": "theirs"}]', None),
        (b"<html>", None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
async def test_what_serves_is_told_as_far_as_it_says(stranger: Stranger, body: bytes, model: str | None) -> None:
    stranger.body = body
    target = Target(f"http://127.0.0.1:{stranger.server_port}/v1/audio/speech", "openai")
    found = {"server": "stranger/1", "model": model}
    assert await describe(target) == {name: value for name, value in found.items() if value}
    assert await left_behind(target) is None


async def test_nobody_there_says_nothing() -> None:
    assert await describe(Target("ws://127.0.0.1:9")) == {}
