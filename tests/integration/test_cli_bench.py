"""`voicegate bench`, as a shell would call it, against a real gateway with the FakeEngine."""

import asyncio
import json
from pathlib import Path

import pytest

from voicegate import __version__
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.cli.main import run
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway

pytestmark = pytest.mark.usefixtures("no_hang")


async def command(*arguments: str) -> int:
    """In a thread, because the command runs an event loop of its own."""
    return await asyncio.to_thread(run, ("bench", *arguments))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_a_table_and_three_files(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Hello there.\n\nGood bye.\n")
    options = ("--duration-s", "0.3", "--num-alone", "2", "--codec", "pcm_s16le", "--texts", str(texts))
    status = await command(url, "--scenarios", "alone:whole", "closed:2", *options, "-o", str(tmp_path / "out"))
    assert status == 0
    out, err = capsys.readouterr()
    begins = [line.split()[0] for line in out.splitlines()]  # the gateway's own log is among them
    assert [word for word in begins if word in ("scenario", "alone:whole", "closed:2:whole")] == [
        "scenario",
        "alone:whole",
        "closed:2:whole",
    ]
    assert "report.html" in err
    saved = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert saved["scenarios"]["alone:whole"]["audible_ms"]["num"] == 2
    assert saved["environment"]["voicegate"] == __version__
    assert saved["target"] == {
        "url": url,
        "dialect": "native",
        "codec": "pcm_s16le",
        "server": f"voicegate/{__version__}",
        "model": "fake",
    }
    conditions = {"mode": "auto", "voices": [None], "seed": 0, "duration_s": 0.3, "num_alone": 2}
    assert conditions.items() <= saved.items(), "what it takes to have the same load again"
    assert len(saved["texts_sha256"]) == 64
    assert saved["scenarios"]["alone:whole"]["seconds_per_letter"] == 0.06
    assert saved["scenarios"]["closed:2:whole"]["seconds_per_letter"] != 0.06, "it was heard by then"
    events = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    assert len(events) >= 4
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (("--scenarios", "alone:whole", "--num-alone", "2"), "alone:whole"),
        (("--max-streams", "4", "--ramp", "closed", "--duration-s", "0.2"), "closed:1:whole"),
    ],
    ids=["scenarios", "ramp"],
)
async def test_where_no_turn_is_heard_it_fails(
    what: tuple[str, ...], name: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command(url, "--voice", "nobody", *what, "-o", str(tmp_path)) == 1
    out, err = capsys.readouterr()
    assert "no turn was heard" in err
    assert "sustained" not in out
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert saved["scenarios"][name]["first_audio_ms"] is None
    assert "sustained" not in saved


async def test_a_run_that_measures_nothing_leaves_what_stood_there(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--scenarios", "closed:1", "--duration-s", "0.2", "-o", str(tmp_path))
    assert await command(url, *options) == 0
    before = contents(tmp_path)
    assert before["events.jsonl"]
    capsys.readouterr()
    assert await command("ws://127.0.0.1:9", *options) == 1
    assert contents(tmp_path) == before
    assert "what was measured" not in capsys.readouterr().out
    assert await command(url, *options) == 0
    again = contents(tmp_path)["events.jsonl"]
    assert again
    assert again != before["events.jsonl"]
    assert not again.startswith(before["events.jsonl"]), "of one run"


async def test_what_was_measured_before_a_server_went_is_kept_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_gateway(GatewayConfig(max_sockets=2), FakeEngine()) as url:
        options = ("--duration-s", "0.2", "-o", str(tmp_path))
        assert await command(url, "--scenarios", "closed:1", "closed:9", *options) == 1
    out, err = capsys.readouterr()
    assert f"what was measured by then is in {tmp_path / 'report.html'}" in out
    assert "all sockets are taken" in err.splitlines()[-1]
    assert list(json.loads((tmp_path / "bench.json").read_text())["scenarios"]) == ["closed:1:whole"]


async def test_a_ramp_ends_where_the_server_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running_gateway(GatewayConfig(max_contexts=2, waiting_contexts=0), FakeEngine()) as url:
        ramp = ("--max-streams", "8", "--ramp", "closed", "--duration-s", "0.3", "--first-audio-ms", "5000")
        assert await command(url, *ramp, "--c100", "0", "-o", str(tmp_path)) == 0
    assert "sustained: 2 streams of closed" in capsys.readouterr().out
    assert json.loads((tmp_path / "bench.json").read_text())["sustained"]["num_streams"] == 2


async def test_a_refusal_says_what_the_server_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key_file = tmp_path / "keys.json"
    assert await asyncio.to_thread(run, ("keys", "add", "ben", "--api-keys-file", str(key_file))) == 0
    config = GatewayConfig(api_keys_file=key_file)
    async with running_gateway(config, FakeEngine()) as url:
        assert await command(url, "--scenarios", "closed:1", "-o", str(tmp_path)) == 1
    assert "answered HTTP 401: this server asks for a key" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("ws://127.0.0.1:9",), "cannot connect"),
        (("http://",), "is no gateway's address"),
        (("ws://127.0.0.1:9", "--max-streams", "4", "--ramp", "alone"), "--ramp alone"),
        (("ws://127.0.0.1:9", "--texts", "nowhere.txt"), "nowhere.txt cannot be used"),
        (("ws://127.0.0.1:9", "--header", "X"), "is not NAME:VALUE"),
        (("ws://127.0.0.1:9", "--server-pid", "4194305"), "--server-pid 4194305: there is no such process"),
        (("ws://127.0.0.1:9", "-o", "/proc/x"), "/proc/x cannot be written: No such file or directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_what_cannot_be_measured_is_one_line(
    arguments: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("-o", str(tmp_path), *arguments, "--scenarios", "closed:1") == 1
    err = capsys.readouterr().err
    assert told in err.splitlines()[-1]
    assert "Traceback" not in err


async def test_an_unknown_scenario_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        await command("--scenarios", "fast:9")
    assert "mixed:N" in capsys.readouterr().err


async def test_speech_in_opus_is_heard_too(url: str, tmp_path: Path) -> None:
    options = ("--duration-s", "0.3", "--num-alone", "2", "-o", str(tmp_path / "out"))
    assert await command(url, "--scenarios", "alone:whole", *options) == 0
    row = json.loads((tmp_path / "out" / "bench.json").read_text())["scenarios"]["alone:whole"]
    assert row["audible_ms"]["num"] == row["first_audio_ms"]["num"]
    assert row["audible_ms"]["p50"] >= row["first_audio_ms"]["p50"]
