"""The LLM example end to end: a stub of an OpenAI-style server, a real gateway, real sockets."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import av
import pytest

from tests.integration.stub_llm import StubLlm
from voicegate.clients.examples.chat import Llm, LlmError, Message, content_of
from voicegate.clients.examples.llm_to_speech import main, speak
from voicegate.clients.python.threaded import iterate_in_thread
from voicegate.engine.fake.engine import Script

pytestmark = pytest.mark.usefixtures("no_hang")


PIECES = ["Hello ", "wor", "ld.", " Bye"]
ASKED: list[Message] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def llm() -> Iterator[StubLlm]:
    with StubLlm(PIECES).serving() as stub:
        yield stub


async def test_pieces_arrive_while_the_answer_is_written(llm: StubLlm) -> None:
    pieces = iterate_in_thread(lambda: Llm(llm.base_url, "stub", "key").answer(ASKED))
    assert await anext(pieces) == "Hello "
    llm.may_go_on.set()
    assert [piece async for piece in pieces] == ["wor", "ld.", " Bye"]
    ((path, headers, body),) = llm.requests
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", "Bearer key")
    assert body == {"model": "stub", "stream": True, "messages": ASKED}


async def test_the_answer_is_spoken(llm: StubLlm, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llm.may_go_on.set()
    path = tmp_path / "answer.opus"
    pieces = iterate_in_thread(lambda: Llm(llm.base_url, "stub").answer(ASKED))
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
    assert all(piece in shown for piece in PIECES)
    assert path.stat().st_size > 10_000
    monkeypatch.setenv("OPENAI_MODEL", "another")
    assert await asyncio.to_thread(main) == 1
    assert "answered HTTP 404" in capsys.readouterr().err


def test_no_llm_is_one_line() -> None:
    with pytest.raises(LlmError, match="refused"):
        next(Llm("http://127.0.0.1:9/v1", "stub").answer(ASKED))


@pytest.mark.parametrize(
    "line", [b"data: {", b"data: []", b'data: {"choices": [{}]}', b'data: {"error": "quota"}'], ids=str
)
def test_what_is_no_completion_is_refused(line: bytes) -> None:
    with pytest.raises(LlmError):
        list(content_of([line]))


@pytest.mark.parametrize("rest", [b"40\r\ndata: {", b"", None], ids=["in a chunk", "between chunks", "no HTTP"])
def test_a_server_that_breaks_off_is_told_as_such(rest: bytes | None) -> None:
    body = b'data: {"choices": [{"delta": {"content": "Half a"}}]}\n'
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = b"\0SSH-2.0\r\n\r\n" if rest is None else b"%b%x\r\n%b\r\n%b" % (head, len(body), body, rest)

    def serve() -> None:
        with server, server.accept()[0] as client:
            client.recv(65_536)
            client.sendall(answer)

    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    heard = list[str]()
    with pytest.raises(LlmError):
        heard.extend(Llm(f"http://127.0.0.1:{server.getsockname()[1]}/v1", "stub").answer(ASKED))
    thread.join()


def test_an_answer_that_breaks_off_is_none() -> None:
    half = b'data: {"choices": [{"delta": {"content": "Half a"}}]}'
    pieces = content_of([half])
    assert next(pieces) == "Half a"
    with pytest.raises(LlmError, match="broke off"):
        next(pieces)
    for end in (b"data: [DONE]", b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}'):
        assert list(content_of([half, end])) == ["Half a"]
