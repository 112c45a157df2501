"""Ctrl-C at the worst moments.

While modules are imported, some of which catch whatever is raised. And in the instant in which `asyncio.run` begins:
CPython's runner then cancels its task and forgets why.
"""

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
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
        if number == signal.SIGINT and isinstance(handler, partial):  # the runner's
            signal.raise_signal(signal.SIGINT)
        return before

    monkeypatch.setattr(signal, "signal", install_and_interrupt)
    assert main() == 130


# A package as there are some: it goes on without what it could not import.
CARELESS = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    pass
"""
IMPORTING = f"""
from voicegate.gateway.cli.extras import server_imports
with server_imports():
    exec({CARELESS!r})
print("it went on")
"""
STARTING = f"""
import sys
from importlib.abc import MetaPathFinder
class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "voicegate.gateway.cli.main":
            exec({CARELESS!r})
sys.meta_path.insert(0, Finder())
from voicegate.__main__ import main
sys.argv = ["voicegate", "version"]
sys.exit(main())
"""
CHECKING = f"""
from voicegate.gateway.cli import doctor
from voicegate.gateway.cli.main import run
doctor.examine = lambda _config: exec({CARELESS!r}) or []
run(["doctor"])
print("it went on")
"""


@pytest.mark.parametrize("program", [IMPORTING, STARTING, CHECKING], ids=["importing", "starting", "checking"])
def test_an_interrupt_while_modules_are_imported_is_quiet_and_not_lost(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_command_that_ignores_interrupts_goes_on_doing_so() -> None:
    """As a shell's script has it for what it starts in the background."""
    program = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{IMPORTING}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "it went on\n", "")
