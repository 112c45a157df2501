"""Voices made in a process of their own: the same ones, and whatever becomes of the process is told."""

import asyncio
import subprocess
from pathlib import Path

import pytest
import structlog
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.engine.child_process import start_module
from voicegate.engine.interface import EngineError, NewVoice, VoiceRefused
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices import maker
from voicegate.engine.voices.maker import MODULE, ProcessMaker
from voicegate.engine.voices.maker_wire import NotMade, Task, write_message
from voicegate.engine.voices.making import answer_to, make_voice

RECORDING = (TINY_MODEL_DIR / "voices" / "man_prompt.wav").read_bytes()
ORDER = NewVoice("guest", RECORDING, "Hello there, it is very nice to meet you.", "a guest")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ProcessMaker:
    """Its process does what a voice's name says: tests/support/scripted_maker.py."""
    monkeypatch.setattr(maker, "MODULE", "tests.support.scripted_maker")
    return ProcessMaker(TINY_MODEL_DIR)


async def test_what_makes_no_voice_at_first_sight_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "start_module", lambda *_, **__: pytest.fail("a process was started"))
    for recording in (b"", bytes(1_000_000), b"<html>"):
        with pytest.raises(VoiceRefused, match="no sound file"):
            await ProcessMaker(TINY_MODEL_DIR).make(NewVoice("guest", recording))
    with pytest.raises(VoiceRefused, match="transcript has 1000 characters"):
        await ProcessMaker(TINY_MODEL_DIR).make(NewVoice("guest", RECORDING, "x" * 1000))


async def test_one_that_hangs_holds_up_no_other(scripted: ProcessMaker) -> None:
    hanging = asyncio.create_task(scripted.make(NewVoice("busy", RECORDING)))
    await until(lambda: process_of(scripted) is not None)
    with pytest.raises(VoiceRefused, match="too quiet"):
        await scripted.make(NewVoice("refused", RECORDING))
    assert not hanging.done()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_at_once_there_are_few_processes(scripted: ProcessMaker) -> None:
    makings = [asyncio.create_task(scripted.make(NewVoice("busy", RECORDING))) for _ in range(3)]
    await until(lambda: len(scripted._makings) == maker._MAX_PROCESSES == 2)
    makings[0].cancel()
    await until(lambda: makings[0].done() and len(scripted._makings) == 2)  # the third has its place
    for making in makings:
        making.cancel()
    await asyncio.wait(makings)


async def test_it_is_the_voice_that_this_process_would_make() -> None:
    made = await ProcessMaker(TINY_MODEL_DIR).make(ORDER)
    own = make_voice(TINY_MODEL_DIR, load_model_config(TINY_MODEL_DIR), ORDER)
    for name in ("name", "description", "prompt_text", "transcript", "pace"):
        assert getattr(made, name) == getattr(own, name)
    for name in ("speech_tokens", "mel", "embedding"):
        assert getattr(made, name).dtype is getattr(own, name).dtype
        assert torch.equal(getattr(made, name), getattr(own, name))


def test_refusals_and_faults_are_told_apart(tmp_path: Path) -> None:
    num_threads = torch.get_num_threads()
    refused = answer_to(Task(str(TINY_MODEL_DIR), num_threads, NewVoice("guest", b"")))
    assert isinstance(refused, NotMade)
    assert refused.error == "VoiceRefused"
    assert "no sound file" in refused.message
    (tmp_path / "model.json").write_bytes((TINY_MODEL_DIR / "model.json").read_bytes())
    (tmp_path / "voices").mkdir()
    (tmp_path / "speech_tokenizer.safetensors").write_bytes(b"cut short")
    broken = answer_to(Task(str(tmp_path), num_threads, ORDER))
    assert isinstance(broken, NotMade)
    assert broken.error == "EngineError"
    assert "no voice can be made: " in broken.message
    assert "speech_tokenizer.safetensors cannot be read" in broken.message


async def test_what_the_process_refuses_is_refused(scripted: ProcessMaker) -> None:
    with pytest.raises(VoiceRefused, match="too quiet"):
        await scripted.make(NewVoice("refused", RECORDING))


@pytest.mark.parametrize(("name", "status"), [("killed", -9), ("silent", 0)])
async def test_a_process_that_dies_fails_its_voice(scripted: ProcessMaker, name: str, status: int) -> None:
    with structlog.testing.capture_logs() as lines, pytest.raises(EngineError, match="has ended; see the log"):
        await scripted.make(NewVoice(name, RECORDING))
    assert [(line["event"], line["status"]) for line in lines] == [("voice_maker_died", status)]


@pytest.mark.parametrize("num_bytes", [100, 30_000, 66_000, 70_000, 72_000, 500_000])
async def test_one_that_dies_before_it_has_read_its_task(
    num_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is written, or with a rest of it that only the end of the pipe writes."""
    (tmp_path / "dies.py").write_text("import os, time; time.sleep(0.05); os._exit(1)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(maker, "MODULE", "dies")
    with structlog.testing.capture_logs() as lines, pytest.raises(EngineError, match="has ended; see the log"):
        await ProcessMaker(TINY_MODEL_DIR).make(NewVoice("guest", b"OggS" + bytes(num_bytes)))
    assert [(line["event"], line["status"]) for line in lines] == [("voice_maker_died", 1)]


def process_of(maker: ProcessMaker) -> "subprocess.Popen[bytes] | None":
    for making in maker._makings:
        return making._process
    return None


@pytest.mark.parametrize("end", ["cancelled", "closed"])
async def test_one_that_is_given_up_leaves_no_process(scripted: ProcessMaker, end: str) -> None:
    making = asyncio.create_task(scripted.make(NewVoice("busy", RECORDING)))
    await until(lambda: process_of(scripted) is not None)
    process = process_of(scripted)
    assert process is not None
    if end == "cancelled":
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
    else:
        scripted.close()
        with structlog.testing.capture_logs() as lines, pytest.raises(EngineError):
            await making
        assert not lines
    await until(lambda: process.returncode is not None)
    assert process.returncode == -9


async def test_one_that_takes_too_long_is_given_up(scripted: ProcessMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "_PATIENCE_S", 0.01)
    with structlog.testing.capture_logs() as lines, pytest.raises(EngineError, match=r"no voice was made within"):
        await scripted.make(NewVoice("busy", RECORDING))
    assert "voice_maker_hung" in [line["event"] for line in lines]


def test_it_ends_with_who_asked() -> None:
    with start_module(MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        write_message(process.stdin, Task(str(TINY_MODEL_DIR), 1, ORDER))  # type: ignore[arg-type]
        process.stdin.close()
        process.wait(PATIENCE_S)
