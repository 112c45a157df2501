"""A start of which one device fails: it is named, and nothing is left running beside it."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from tests.support.disaggregated import OnLanes, apart, on_lanes
from tests.support.golden import TINY_MODEL_DIR
from tests.support.polling import until
from tests.support.tiny_engine import CONFIG
from voicegate.engine.backends.disaggregated import addition
from voicegate.engine.backends.disaggregated.addition import load_all_stages
from voicegate.engine.core.stages import Stages, VoicePrompt
from voicegate.engine.interface import EngineError
from voicegate.engine.load import build
from voicegate.engine.load.build import create_engine
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices

SEVERAL = replace(apart(CONFIG, 2), encoder_processes=1)
MODEL = load_model_config(TINY_MODEL_DIR)
LOADERS = ("load_llm", "load_vocoder", "load_flow", "ready_voice")
LOST = RuntimeError("out of memory")


class Parts:
    """Loaded parts, in place of models; the LLM is closed once at most."""

    def __init__(self) -> None:
        self.num_closed = 0

    def close(self) -> None:
        self.num_closed += 1

    def num_prompt_blocks(self, num_tokens: int) -> int:
        return num_tokens

    @property
    def flow_prompt(self) -> VoicePrompt:
        """As a voice has one."""
        return VoicePrompt(None, 1, 1)


@dataclass
class Lines:
    """Implements Progress."""

    told: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.told.append(text.partition(":")[0])

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        pass


def broken_on(number: int, parts: Parts, error: Exception) -> Callable[..., Parts]:
    """A loader that does so many devices, and not the next."""
    devices = iter([False] * number + [True])

    def load(*_: object, **__: object) -> Parts:
        if next(devices):
            raise error
        return parts

    return load


@pytest.mark.parametrize(
    ("loader", "number", "device"),
    [
        ("load_llm", 0, "cpu"),
        ("load_vocoder", 0, "cpu.2"),
        ("load_vocoder", 1, "cpu.3"),
        ("load_flow", 1, "cpu.3"),
        ("ready_voice", 1, "cpu.3"),
    ],
)
@pytest.mark.parametrize("error", [LOST, EngineError("this GPU is too old")])
def test_the_device_that_cannot_be_loaded_is_named(
    loader: str, number: int, device: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    for name in LOADERS:
        module = build if name == "ready_voice" else addition
        monkeypatch.setattr(module, name, broken_on(number if name == loader else 9, parts, error))
    one_voice = dict(list(load_voices(TINY_MODEL_DIR, MODEL).items())[:1])
    with pytest.raises(EngineError) as caught:
        load_all_stages(SEVERAL, MODEL, one_voice)
    kind = "RuntimeError: " if error is LOST else ""
    assert str(caught.value) == f"the start failed on {device}: {kind}{error}"
    assert caught.value.__cause__ is error
    assert parts.num_closed == (loader != "load_llm")


def test_files_that_do_not_fit_are_no_devices_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addition, "load_llm", broken_on(0, Parts(), ValueError("llm.safetensors is torn")))
    with pytest.raises(ValueError, match=r"^llm.safetensors is torn$"):
        load_all_stages(SEVERAL, MODEL, {})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> OnLanes:
    """Hollow token2wavs on lanes, where the engine loads its models."""
    lanes = on_lanes()

    def load(*_: object) -> Sequence[Stages]:
        return lanes.all_stages

    monkeypatch.setattr(addition, "load_all_stages", load)
    return lanes


async def test_a_device_that_cannot_speak_is_named_and_nothing_goes_on(
    made: OnLanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made.models.held
    closed: list[bool] = []
    monkeypatch.setattr(made.all_stages[0].llm, "close", lambda: closed.append(True))

    def fail(*_: object, **__: object) -> None:
        raise LOST

    monkeypatch.setattr(made.models.parts[1].flow._solver, "begin", fail)
    progress = Lines()
    engine = create_engine(SEVERAL, on_progress=progress)
    told = r"the start failed on cpu\.3: warm-up: 0 of \d+ voices spoke; see the log"
    with capture_logs(), pytest.raises(EngineError, match=told):
        await engine.start()
    await engine.close()
    assert progress.told == ["configuration and voices", "warm-up on cpu.2"], "the encoders' processes were not begun"
    assert closed == [True]
    assert made.models.held == before
    assert "engine" not in [thread.name for thread in threading.enumerate()]


async def test_a_start_waits_for_a_device_that_hangs_and_has_told_of_the_others(made: OnLanes) -> None:
    """A supervisor gives a start its time; it stops all the same (test_process.py)."""
    made.lanes[1].hang()
    progress = Lines()
    engine = create_engine(replace(SEVERAL, encoder_processes=0), on_progress=progress)
    starting = asyncio.create_task(engine.start())
    try:
        await until(lambda: "warm-up on cpu.2" in progress.told)
        assert not starting.done()
        assert engine.unready_reason is not None
        assert engine.pulse is None, "which is no engine that hangs: it is not ready"
        made.lanes[1].go_on()
        await starting
        assert progress.told[-1] == "warm-up on cpu.3"
        assert engine.unready_reason is None
    finally:
        made.lanes[1].go_on()
        await asyncio.wait({starting})
        await engine.close()
