"""Ctrl-C in the instant in which `asyncio.run` begins: CPython's runner then cancels its task and forgets why."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicegate.bench import demo
from voicegate.clients.examples import llm_to_speech, telephone, terminal_assistant
from voicegate.gateway.cli.main import run as command


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (lambda: command(["say", "hello", "--url", "ws://127.0.0.1:9", "-o", "hello.wav"]), []),
        (terminal_assistant.main, ["--url", "ws://127.0.0.1:9", "-o", "."]),
        (llm_to_speech.main, ["--url", "ws://127.0.0.1:9", "-o", "hello.wav", "hello"]),
        (telephone.main, ["--url", "ws://127.0.0.1:9", "--port", "0"]),
        (demo.main, []),
    ],
    ids=["say", "terminal_assistant", "llm_to_speech", "telephone", "demo"],
)
def test_an_interrupt_as_the_event_loop_begins(
    main: Callable[[], int], arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["program", *arguments])
    for name, value in (("OPENAI_BASE_URL", "http://127.0.0.1:9"), ("OPENAI_MODEL", "stub")):
        monkeypatch.setenv(name, value)
    install = signal.signal

    def install_and_interrupt(number: int, handler: Any) -> Any:
        before = install(number, handler)
        if number == signal.SIGINT and handler is not signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return before

    monkeypatch.setattr(signal, "signal", install_and_interrupt)
    assert main() == 130
