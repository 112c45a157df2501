"""The wheels with the extra `server`: it serves the tiny model, and the README's client speaks with it."""

import re
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment, plain_environment
from tests.unit.clients.deadline import deadline

_LIMIT_S = 240  # torch is imported and a model warmed up, on a machine that may be busy
_README_URL = "ws://localhost:8080"


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    with deadline(_LIMIT_S):
        yield


@pytest.fixture(scope="module")
def url(server: Environment) -> Iterator[str]:
    program = server.folder / "bin" / "voicegate"
    command = [program, "serve", "--port", "0", "--threads", "1", "--log-level", "error", "--engine-timeout-s", "60"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=server.elsewhere, env=plain_environment()
    ) as gateway:
        assert gateway.stdout is not None
        try:
            with deadline(_LIMIT_S):
                line = gateway.stdout.readline()
            assert line.startswith("voicegate is ready: ws://127.0.0.1:")
            yield line.split()[3].rstrip(",")
        finally:
            gateway.terminate()
    assert gateway.returncode == 0


def test_nothing_of_this_tree_is_seen(server: Environment) -> None:
    program = (
        "import voicegate.engine.interface as engine, voicegate_tiny_model as tiny, torch, importlib.util\n"
        "print(engine.__file__, tiny.MODEL_DIR, importlib.util.find_spec('voicegate.bench'), sep='\\n')"
    )
    shown = server.run("python", "-c", program).stdout.splitlines()
    assert shown == [
        str(server.packages / "voicegate" / "engine" / "interface.py"),
        str(server.packages / "voicegate_tiny_model" / "tiny"),
        "None",
    ]


def test_the_installed_model_is_found(server: Environment) -> None:
    shown = server.run("voicegate", "voices", "show", "woman").stdout
    assert f"{server.packages / 'voicegate_tiny_model' / 'tiny' / 'voices' / 'woman.safetensors'}" in shown


def test_the_lines_of_the_readme_speak(url: str, client: Environment) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (lines,) = [block for block in blocks if _README_URL in block and "import asyncio" in block]
    ran = client.run("python", "-W", "error", "-c", lines.replace(_README_URL, url))
    assert ran.returncode == 0, ran.stderr
    assert (client.elsewhere / "hello.opus").read_bytes().startswith(b"OggS")


@pytest.mark.parametrize("who", ["client", "server"])
def test_say(url: str, who: str, request: pytest.FixtureRequest) -> None:
    environment: Environment = request.getfixturevalue(who)
    for name in ("good.wav", "good.opus"):
        ran = environment.run("voicegate", "say", "Good morning.", "--url", url, "-o", name)
        assert ran.returncode == 0, ran.stderr
    with wave.open(str(environment.elsewhere / "good.wav")) as file:
        assert file.getnframes() > file.getframerate() / 2
        assert len(set(file.readframes(file.getnframes()))) > 100  # speech, not silence
    assert (environment.elsewhere / "good.opus").read_bytes().startswith(b"OggS")


def test_say_without_a_gateway_starts_one(server: Environment) -> None:
    settings = {"VOICEGATE_PORT": "1", "VOICEGATE_THREADS": "1", "VOICEGATE_ENGINE_TIMEOUT_S": "60"}
    ran = server.run("voicegate", "say", "Good morning.", "-o", "alone.wav", **settings)
    assert ran.returncode == 0, ran.stderr
    assert "no gateway on port 1" in ran.stderr
    assert Path(server.elsewhere / "alone.wav").stat().st_size > 10_000
