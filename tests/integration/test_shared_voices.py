"""Voices that were added at run time, and the death of the engine process that has them: the tiny model, for real."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.listener import Listener
from tests.support.golden import TINY_MODEL_DIR, TINY_VOICES
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from tests.support.quick_model import quick_model
from voicegate.engine.interface import Done, NewVoice
from voicegate.engine.process import keeper
from voicegate.engine.process.front import RoutingEngine
from voicegate.engine.voices.pace import VoicePace
from voicegate.engine.voices.voice import save_pace
from voicegate.gateway.cli.replicas import sites_of
from voicegate.gateway.config import GatewayConfig

RECORDING = (TINY_MODEL_DIR / "voices" / "man_prompt.wav").read_bytes()
TEXT = "Hello there, it is very nice to meet you."


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_LOOK_S", 0.1)


@asynccontextmanager
async def serving(model_dir: Path, voices_dir: Path) -> AsyncIterator[RoutingEngine]:
    """One engine process."""
    config = GatewayConfig(model_dir=model_dir, voices_dir=voices_dir, gpus="cpu", log_level="error")
    engine = RoutingEngine(sites_of(config, os.environ), patience_s=PATIENCE_S)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def replaced(engine: RoutingEngine) -> None:
    """The process by another that serves."""
    (before,) = engine._serving
    pid = engine._keepers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: engine._serving not in ([], [before]))


async def spoken(engine: RoutingEngine, *voices: str) -> None:
    listener = Listener(engine, timeout_s=PATIENCE_S)
    for voice in voices:
        await until(lambda name=voice: name in engine._serving[0].voices)  # type: ignore[misc]
        utterance = listener.submit(f"with {voice}", voice=voice, text="Yes.", end=True)
        assert isinstance(await listener.until_end(utterance), Done)


async def test_a_voice_of_the_directory_is_there_at_once_and_keeps_its_tuned_pace(tmp_path: Path) -> None:
    (voices := tmp_path / "voices").mkdir()
    async with serving(quick_model(tmp_path / "model"), voices) as engine:
        await engine.add_voice(NewVoice("guest", RECORDING, transcript=TEXT))
        path = voices / "guest.safetensors"
        save_pace(path, VoicePace(2.0, 0.7))
        tuned = path.read_bytes()
        await replaced(engine)
        assert engine._serving[0].voices == {*TINY_VOICES, "guest"}
        await spoken(engine, "guest")
        assert path.read_bytes() == tuned
