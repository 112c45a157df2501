"""A server with OpenAI's /chat/completions: it streams the answers that a test gives it, as far as the test lets it."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.patience import PATIENCE_S


def chunk(delta: dict[str, str]) -> bytes:
    return event([{"index": 0, "delta": delta, "finish_reason": None}])


def event(choices: list[dict[str, Any]]) -> bytes:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "stub", "choices": choices}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class StubLlm:
    """Each request gets the next of `answers`, the last one again and again; behind its first piece it waits."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.may_go_on = threading.Event()
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.base_url = ""

    @property
    def conversations(self) -> list[list[tuple[str, str]]]:
        """Messages so far, by request."""
        return [[(each["role"], each["content"]) for each in body["messages"]] for _, _, body in self.requests]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.requests.append((handler.path, dict(handler.headers), body))
        if body["model"] != "stub":
            handler.send_error(404, "no such model")
            return
        first, *others = self._answers[min(len(self.requests), len(self._answers)) - 1]
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        with suppress(ConnectionError):  # who is interrupted leaves
            handler.wfile.write(b": hello\n\n" + chunk({"role": "assistant"}) + chunk({"content": first}))
            self.may_go_on.wait(PATIENCE_S)
            for piece in others:
                handler.wfile.write(chunk({"content": piece}))
            handler.wfile.write(event([]) + b"data: [DONE]\n\n")

    @contextmanager
    def serving(self) -> Iterator["StubLlm"]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                stub.answer(self)

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
