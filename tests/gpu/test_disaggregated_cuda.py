"""The LLM on one GPU, token2wav on the others: the tiny models of both families speak there as on one.

Needs two GPUs; with three or more there are two token2wavs.
"""

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.contract.listener import Listener
from tests.gpu.test_engine_cuda import spectral_distance
from tests.support.golden import TINY_MODEL_DIR
from tests.support.polling import until
from tests.support.stepaudio2_engine import write_model
from voicegate.engine.backends.disaggregated import addition
from voicegate.engine.backends.disaggregated.addition import Devices
from voicegate.engine.backends.disaggregated.config import device_names
from voicegate.engine.config import EngineConfig
from voicegate.engine.flow.backend import FlowBackend
from voicegate.engine.interface import (
    AudioFormat,
    Cancelled,
    Codec,
    Done,
    EngineError,
    Failed,
    SpeakingMode,
    UtteranceId,
)
from voicegate.engine.load.build import create_engine
from voicegate.engine.thread.worker import ThreadedEngine

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")]

TEXT = "Good morning, and welcome back. The train to the coast leaves at nine."
PCM = AudioFormat(codec=Codec.PCM_S16LE)
PATIENCE_S = 3.0
WORKSPACE_BYTES = 64 << 20  # which cuBLAS keeps, for each stream that it has been used on
HANG_CYCLES = 40_000_000_000  # of a kernel that only waits: some 20 s


def first_family(_: Path) -> Path:
    return TINY_MODEL_DIR


def second_family(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def config_of(model_dir: Path) -> EngineConfig:
    return EngineConfig(
        model_dir,
        threads=1,
        device="cuda",
        precision="float32",
        vocoder_precision="float32",
        max_active_clauses=8,
        encoder_processes=0,
        stall_ms=0,
    )


def apart(config: EngineConfig) -> EngineConfig:
    num_gpus = min(torch.cuda.device_count(), 3)
    token2wavs = tuple(f"cuda:{number}" for number in range(1, num_gpus))
    return replace(config, device="auto", llm_device="cuda:0", token2wav_devices=token2wavs)


@asynccontextmanager
async def listening(config: EngineConfig) -> AsyncIterator[Listener]:
    engine = create_engine(config)
    await engine.start()
    try:
        yield Listener(engine, timeout_s=120.0)
    finally:
        await engine.close()


async def spoken(listener: Listener, names: list[str]) -> list[npt.NDArray[np.float32]]:
    """All at once."""
    said = [listener.submit(name, text=TEXT, end=True, audio=PCM, mode=SpeakingMode.CLAUSE) for name in names]
    assert all([isinstance(await listener.until_end(name), Done) for name in said])
    return [np.frombuffer(b"".join(listener.packets(name)), "<i2").astype(np.float32) / 32768 for name in said]


@pytest.mark.parametrize("family", [first_family, second_family])
async def test_speech_is_what_one_gpu_speaks(family: Callable[[Path], Path], tmp_path: Path) -> None:
    config = config_of(family(tmp_path))
    async with listening(config) as listener:
        (alone,) = await spoken(listener, ["alone"])
    async with listening(apart(config)) as listener:
        for _ in range(2):
            together = await spoken(listener, [f"u{number}" for number in range(4)])
            for samples in together:
                assert spectral_distance(alone, samples) < 0.15


async def test_a_cancel_gives_all_back_on_both_gpus() -> None:
    async with listening(apart(config_of(TINY_MODEL_DIR))) as listener:
        engine = listener.engine
        assert isinstance(engine, ThreadedEngine)
        before = dict(engine.stats().gauges)
        names = [listener.submit(f"u{number}", text=TEXT, audio=PCM) for number in range(6)]
        await heard_of(listener, names[0])
        for name in names:
            engine.cancel(name)
        ends = [await listener.until_end(name) for name in names]
        assert all(isinstance(end, Cancelled) for end in ends)
        await until(lambda: dict(engine.stats().gauges) == before, timeout_s=30.0)


async def heard_of(listener: Listener, name: UtteranceId) -> None:
    while not listener.events[name]:
        await listener.next()


async def test_each_gpu_holds_models() -> None:
    gc.collect()
    before = [torch.cuda.memory_allocated(number) for number in range(2)]
    async with listening(apart(config_of(TINY_MODEL_DIR))):
        assert all(torch.cuda.memory_allocated(number) > before[number] for number in range(2))


async def test_a_gpu_that_hangs_fails_what_it_spoke_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kernel that does not end makes it: what is launched behind it waits."""
    opened: list[Devices] = []
    open_devices = addition.open_devices

    def open_and_keep(config: EngineConfig) -> Devices:
        opened.append(open_devices(config))
        return opened[-1]

    monkeypatch.setattr(addition, "open_devices", open_and_keep)
    config = replace(apart(config_of(TINY_MODEL_DIR)), device_patience_s=PATIENCE_S)
    num_token2wavs = len(config.token2wav_devices)
    async with listening(config) as listener:
        engine = listener.engine
        before, before_room = dict(engine.stats().gauges), engine.room
        with opened[0].token2wavs[0].token2wav_lane.active():
            torch.cuda._sleep(HANG_CYCLES)
        ends = [await listener.until_end(name) for name in said_by_each(listener, "u", num_token2wavs)]
        assert [type(end) for end in ends] == [Failed, *[Done] * (num_token2wavs - 1)]
        assert [name for name, hangs in engine.stats().hangs.items() if hangs] == [device_names(config)[1]]
        assert (engine.unready_reason is None) is (num_token2wavs > 1)
        await until(lambda: not any(engine.stats().hangs.values()), timeout_s=120.0)
        # Told once the step is over that saw it go on: who comes before is refused as overloaded.
        await until(lambda: engine.room == before_room, timeout_s=30.0)
        assert engine.unready_reason is None
        ends = [await listener.until_end(name) for name in said_by_each(listener, "again", num_token2wavs)]
        assert all(isinstance(end, Done) for end in ends)
        await until(lambda: dict(engine.stats().gauges) == before, timeout_s=30.0)


def said_by_each(listener: Listener, name: str, number: int) -> list[UtteranceId]:
    """As many at once as there are token2wavs: one goes to each."""
    return [listener.submit(f"{name}{place}", text=TEXT, end=True) for place in range(number)]


async def test_a_start_that_fails_on_the_last_gpu_names_it_and_gives_all_back(monkeypatch: pytest.MonkeyPatch) -> None:
    config = apart(config_of(TINY_MODEL_DIR))
    load_flow = addition.load_flow

    def fail_on_the_last(*arguments: Any, **options: Any) -> FlowBackend[Any, Any]:
        if torch.cuda.current_device() == len(config.token2wav_devices):
            raise torch.OutOfMemoryError("as if there were none")
        return load_flow(*arguments, **options)

    gc.collect()
    before = [torch.cuda.memory_allocated(number) for number in range(torch.cuda.device_count())]
    monkeypatch.setattr(addition, "load_flow", fail_on_the_last)
    engine = create_engine(config)
    with pytest.raises(EngineError, match=f"the start failed on {device_names(config)[-1]}: OutOfMemoryError"):
        await engine.start()
    await engine.close()
    del engine
    gc.collect()
    held = [torch.cuda.memory_allocated(number) for number in range(torch.cuda.device_count())]
    assert all(now < was + WORKSPACE_BYTES for now, was in zip(held, before, strict=True))
