"""`voicegate say` and `voicegate voices`, as a shell would call them, against a real gateway with the FakeEngine."""

import asyncio
import errno
import os
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import av
import pytest

from tests.support.ports import reserved_port
from voicegate.clients.python.errors import MissingDependency
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.gateway.cli import local, say
from voicegate.gateway.cli.main import run
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway

pytestmark = pytest.mark.usefixtures("no_hang")

MS_PER_CHARACTER = Script().ms_per_character


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def url(engine: FakeEngine) -> AsyncIterator[str]:
    async with running_gateway(GatewayConfig(), engine) as url:
        yield url


@pytest.fixture
def free_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


async def command(*arguments: str) -> int:
    """In a thread, because the command runs an event loop of its own."""
    return await asyncio.to_thread(run, arguments)


def wav_ms(path: Path) -> float:
    with wave.open(str(path)) as file:
        return float(file.getnframes() * 1000 / file.getframerate())


async def test_a_text_becomes_a_wav(
    url: str, engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hello.wav"
    status = await command("say", "Hello world", "--url", url, "-o", str(path), "--voice", "drone", "--seed", "5")
    assert status == 0
    assert wav_ms(path) == 10 * MS_PER_CHARACTER
    shown = capsys.readouterr().err
    assert f"wrote {path}" in shown
    assert "time to first audio" in shown
    assert (engine.requests[0].voice, engine.requests[0].seed) == ("drone", 5)


async def test_a_text_becomes_an_opus_file(url: str, tmp_path: Path) -> None:
    path = tmp_path / "hello.opus"
    assert await command("say", "Hello world", "--url", url, "-o", str(path), "--speed", "1.5") == 0
    with av.open(str(path)) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == 10 * MS_PER_CHARACTER * 48


async def test_stdin_is_spoken_as_it_arrives(
    url: str, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    path = tmp_path / "stdin.wav"
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        saying = asyncio.create_task(command("say", "--url", url, "-o", str(path)))
        os.write(writing, "Gr\u00fc".encode()[:-1])  # half a character
        os.write(writing, "Gr\u00fc".encode()[-1:] + b"\xc3\x9fe ")
        await engine.until(lambda: bool(engine.requests))
        os.write(writing, b"dich")
        os.close(writing)
        assert await saying == 0
    assert wav_ms(path) == 9 * MS_PER_CHARACTER


async def test_nothing_to_say_is_an_empty_file(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.wav"
    assert await command("say", "", "--url", url, "-o", str(path)) == 0
    err = capsys.readouterr().err
    assert "nothing to say" in err
    assert "the model speaks en, zh" in err
    assert wav_ms(path) == 0


async def test_without_a_sound_device_the_default_file_is_written(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_device() -> str:
        raise MissingDependency("no sound device here")

    monkeypatch.setattr(say, "find_sound_device", no_device)
    monkeypatch.chdir(tmp_path)
    assert await command("say", "Hello", "--url", url) == 0
    assert "no sound device here; writing say.wav" in capsys.readouterr().err
    assert wav_ms(tmp_path / "say.wav") == 5 * MS_PER_CHARACTER


async def test_a_sound_card_without_libopus_is_told_before_anything_is_said(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_opus() -> str:
        raise MissingDependency("no libopus here")

    monkeypatch.setattr(say, "find_sound_device", lambda: "speakers")
    monkeypatch.setattr(say, "check_opus", no_opus)
    monkeypatch.chdir(tmp_path)
    assert await command("say", "Hello", "--url", url) == 0
    shown = capsys.readouterr().err
    assert shown.startswith("no libopus here; writing say.wav")
    assert "playing" not in shown


async def test_without_a_gateway_one_is_started_here(
    free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICEGATE_PORT", str(free_port))
    monkeypatch.setattr(local, "build_engine", lambda _config, _on_progress: FakeEngine())
    monkeypatch.setattr("voicegate.gateway.logs.configure_logs", lambda _level, _form: None)
    path = tmp_path / "hello.wav"
    assert await command("say", "Hello", "-o", str(path)) == 0
    assert f"no gateway on port {free_port}: starting one" in capsys.readouterr().err
    assert wav_ms(path) == 5 * MS_PER_CHARACTER


async def test_who_is_there_and_does_not_answer_is_no_reason_to_start_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway with TLS hangs up on who does not speak it."""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("VOICEGATE_PORT", str(port))
        assert await command("say", "Hello", "-o", "hello.wav") == 1
    assert f"ws://127.0.0.1:{port}/v1/stream hung up" in capsys.readouterr().err


async def test_the_gateway_on_the_default_port_is_used(
    url: str, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICEGATE_PORT", url.rsplit(":", 1)[1].split("/")[0])
    assert await command("say", "Hello", "-o", str(tmp_path / "hello.wav")) == 0
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--voice", "nobody"), "unknown_voice: "),
        (("-o", "say.mp3"), "the name must end in one of .wav, .opus, .ogg"),
    ],
)
async def test_errors_are_one_line(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    output = () if "-o" in arguments else ("-o", str(tmp_path / "x.wav"))
    assert await command("say", "Hello", "--url", url, *output, *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("voicegate: ")
    assert reason in line


async def test_a_disk_that_is_full_is_one_line(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(say, "write_audio", full)
    path = tmp_path / "x.wav"
    assert await command("say", "Hello", "--url", url, "-o", str(path)) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"voicegate: {path} cannot be written: No space left on device"


async def test_no_gateway_at_the_url_is_one_line(capsys: pytest.CaptureFixture[str], free_port: int) -> None:
    for name in ("say Hello -o x.wav", "voices"):
        assert await command(*name.split(), "--url", f"ws://127.0.0.1:{free_port}") == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "cannot connect" in line


async def test_voices_of_a_running_gateway(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command("voices", "--url", url) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line[:2] in ("* ", "  ")]
    assert shown == ["* hum    A sine tone", "  drone  A sine tone an octave lower"]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            ["It costs $5. <think>No.</think>Go <#0.5#>now."],
            ["It costs five dollars.", "Go.", "(a pause of 500 ms)", "now."],
        ),
        (["5/1/2024", "--language", "en-GB"], ["January fifth, twenty twenty-four."]),
        (["Das kostet 3 €", "--language", "de"], ["Das kostet drei Euro."]),
    ],
)
def test_the_reading_is_shown_and_nothing_said(
    options: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["say", "--show-reading", *options]) == 0
    assert capsys.readouterr().out.splitlines() == lines
