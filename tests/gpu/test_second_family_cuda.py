"""The second family, small, through the whole engine on a GPU: as on the CPU, and alone as among others."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch

from tests.support.second_family import VOICES, config_of, write_second_family
from tests.support.tiny_engine import HandDrivenEngine, Heard
from voicegate.engine.checkpoint.conversion import Decoding
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import Stages
from voicegate.engine.interface import Done, SpeakingMode
from voicegate.engine.load.build import load_stages
from voicegate.engine.load.devices import resolved_for_device
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

TEXT = "Good morning. We leave at noon, and the train goes to the coast."


@cache
def model_dir(decoding: Decoding) -> Path:
    return write_second_family(Path(mkdtemp()) / "two", decoding)


def config(decoding: Decoding, device: str, precision: str = "float32") -> EngineConfig:
    chosen = replace(config_of(model_dir(decoding)), device=device, precision=precision, kv_dtype=precision)
    return resolved_for_device(chosen)


@cache
def stages(decoding: Decoding, device: str, precision: str = "float32") -> Stages:
    model = load_model_config(model_dir(decoding))
    chosen = config(decoding, device, precision)
    return load_stages(chosen, model, load_voices(chosen.model_dir, model))


def speak(engine: HandDrivenEngine, name: str, mode: SpeakingMode) -> Heard:
    return engine.speak(name, [TEXT], voice=VOICES[0], mode=mode)


def loudness(heard: Heard) -> float:
    samples = np.frombuffer(heard.pcm, "<i2").astype(np.float64)
    return float(np.sqrt(np.mean(samples**2)))


@pytest.mark.parametrize("decoding", list(Decoding))
@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL])
def test_float32_says_what_the_cpu_says(decoding: Decoding, mode: SpeakingMode) -> None:
    """Equal tokens, hence equal length, and as loud: samples drift apart by the phase."""
    cpu, gpu = (
        speak(HandDrivenEngine(config(decoding, device), stages(decoding, device)), "u", mode)
        for device in ("cpu", "cuda")
    )
    assert isinstance(cpu.end, Done)
    assert isinstance(gpu.end, Done)
    assert gpu.end.audio_ms == cpu.end.audio_ms
    assert loudness(gpu) == pytest.approx(loudness(cpu), rel=0.1)


@pytest.mark.parametrize("decoding", list(Decoding))
def test_bfloat16_alone_as_in_company(decoding: Decoding) -> None:
    """Tokens are the same to the last; what was taken is given back."""
    chosen, loaded = config(decoding, "cuda", "bfloat16"), stages(decoding, "cuda", "bfloat16")
    free = (loaded.llm.num_free_slots, loaded.flow.num_free_blocks)
    alone = speak(HandDrivenEngine(chosen, loaded), "alone", SpeakingMode.CLAUSE)
    engine = HandDrivenEngine(chosen, loaded)
    names = [engine.submit(f"other {seed}", seed=seed, voice=VOICES[seed % 2]) for seed in range(6)]
    subject = engine.submit("u", voice=VOICES[0])
    for name in (*names, subject):
        engine.core.push_text(name, TEXT)
        engine.core.end_text(name)
    engine.core.cancel(names[0], None)
    engine.run()
    ends = [engine.heard[name].end for name in (*names[1:], subject)]
    assert all(isinstance(end, Done) for end in ends)
    assert isinstance(alone.end, Done)
    assert engine.heard[subject].end.audio_ms == alone.end.audio_ms  # type: ignore[union-attr]
    assert (loaded.llm.num_free_slots, loaded.flow.num_free_blocks) == free
