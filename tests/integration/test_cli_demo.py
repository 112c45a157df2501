"""`make demo` with the FakeEngine in place of the model: the files, the timeline, the pace of the text."""

import asyncio
import wave
from pathlib import Path

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.bench import demo
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.gateway.cli import local

pytestmark = pytest.mark.usefixtures("no_hang")

TEXT = "Good morning, Emma. It is 25 degrees."


@given(st.text())
def test_tokens_make_the_text_again(text: str) -> None:
    assert "".join(demo.tokens_of(text)) == text


def test_tokens_are_about_as_long_as_an_llms() -> None:
    assert demo.tokens_of(TEXT)[:6] == ["Good", " mornin", "g", ",", " Emma", "."]
    assert 3.5 < len(demo.PARAGRAPH) / len(demo.tokens_of(demo.PARAGRAPH)) < 4.5


async def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(local, "build_engine", lambda _config, _on_progress: engine)
    monkeypatch.setattr("voicegate.gateway.logs.configure_logs", lambda _level, _form: None)
    arguments = ["demo", "--text", TEXT, "--tokens-per-s", "1000", "--voice", "drone", "--directory", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    assert await asyncio.to_thread(demo.main) == 0
    shown = capsys.readouterr().out
    audio_ms = sum(char.isalnum() for char in TEXT) * Script().ms_per_character
    steps = ["loading", "engine ready", "first text sent", "last text sent", "end of audio", "time to first audio"]
    positions = [shown.index(step) for step in [*steps, f"{audio_ms / 1000:.2f} s", "real-time factor", "underruns"]]
    assert positions == sorted(positions)
    with wave.open(str(tmp_path / "demo.wav")) as file:
        assert file.getnframes() == audio_ms * 24
    with av.open(str(tmp_path / "demo.opus")) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == audio_ms * 48


async def test_what_goes_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(local, "build_engine", lambda _config, _on_progress: FakeEngine())
    monkeypatch.setattr("voicegate.gateway.logs.configure_logs", lambda _level, _form: None)
    monkeypatch.setattr("sys.argv", ["demo", "--voice", "nobody"])
    assert await asyncio.to_thread(demo.main) == 1
    assert capsys.readouterr().err.startswith("demo: unknown_voice: ")
