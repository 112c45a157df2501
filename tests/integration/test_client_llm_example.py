"""The LLM example end to end: a stub of an OpenAI-style server, a real gateway, real sockets."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import av
import pytest

from tests.unit.clients.deadline import deadline
from voicegate.clients.examples.llm_to_speech import Llm, LlmError, content_of, main, speak
from voicegate.clients.python.threaded import iterate_in_thread
from voicegate.engine.fake.engine import Script

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    with deadline(10):
        yield


def chunk(content: str | None) -> bytes:
    delta = {} if content is None else {"content": content}
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


class StubLlm:
    """Answers with `pieces`, and after the first waits for `may_go_on`."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self.may_go_on = threading.Event()
        self.requests: list[tuple[str, dict[str, str], dict[str, object]]] = []
        self.base_url = ""

    @contextmanager
    def serving(self) -> Iterator["StubLlm"]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.requests.append((self.path, dict(self.headers), body))
                if body["model"] != "stub":
                    self.send_error(404, "no such model")
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                self.wfile.write(b": hello\n\n" + chunk(None) + chunk(stub.pieces[0]))
                stub.may_go_on.wait(5)
                for piece in stub.pieces[1:]:
                    self.wfile.write(chunk(piece))
                self.wfile.write(b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n')

            def log_message(self, *_arguments: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            self.base_url = f"http://127.0.0.1:{server.server_port}/v1"
            try:
                yield self
            finally:
                self.may_go_on.set()
                server.shutdown()
                thread.join()


@pytest.fixture
def llm() -> Iterator[StubLlm]:
    with StubLlm(["Hello ", "wor", "ld.", " Bye"]).serving() as stub:
        yield stub


async def test_pieces_arrive_while_the_answer_is_written(llm: StubLlm) -> None:
    pieces = iterate_in_thread(lambda: Llm(llm.base_url, "stub", "key").answer("Hi"))
    assert await anext(pieces) == "Hello "
    llm.may_go_on.set()
    assert [piece async for piece in pieces] == ["wor", "ld.", " Bye"]
    ((path, headers, body),) = llm.requests
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", "Bearer key")
    assert body == {"model": "stub", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


async def test_the_answer_is_spoken(llm: StubLlm, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llm.may_go_on.set()
    path = tmp_path / "answer.opus"
    pieces = iterate_in_thread(lambda: Llm(llm.base_url, "stub").answer("Hi"))
    await speak(pieces, url=url, voice="hum", output=path)
    with av.open(str(path)) as container:
        num_samples = sum(frame.samples for frame in container.decode(audio=0))
    assert num_samples == len("HelloworldBye") * Script().ms_per_character * 48
    assert "time to first audio" in capsys.readouterr().out


async def test_the_command(
    llm: StubLlm, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    llm.may_go_on.set()
    monkeypatch.setenv("OPENAI_BASE_URL", llm.base_url + "/")
    monkeypatch.setenv("OPENAI_MODEL", "stub")
    path = tmp_path / "answer.wav"
    monkeypatch.setattr("sys.argv", ["llm_to_speech", "Hi", "--url", url, "-o", str(path)])
    assert await asyncio.to_thread(main) == 0
    shown = capsys.readouterr().out  # together with what the gateway logs
    assert all(piece in shown for piece in llm.pieces)
    assert path.stat().st_size > 10_000
    monkeypatch.setenv("OPENAI_MODEL", "another")
    assert await asyncio.to_thread(main) == 1
    assert "answered HTTP 404" in capsys.readouterr().err


def test_no_llm_is_one_line() -> None:
    with pytest.raises(LlmError, match="refused"):
        next(Llm("http://127.0.0.1:9/v1", "stub").answer("Hi"))


@pytest.mark.parametrize(
    "line", [b"data: {", b"data: []", b'data: {"choices": [{}]}', b'data: {"error": "quota"}'], ids=str
)
def test_what_is_no_completion_is_refused(line: bytes) -> None:
    with pytest.raises(LlmError):
        list(content_of([line]))
