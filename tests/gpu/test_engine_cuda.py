"""The whole engine on a GPU with the tiny model: as on the CPU, alone as in a crowd, with graphs as without."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard, shipped_stages
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import Stages
from voicegate.engine.interface import Cancelled, Done, SpeakingMode
from voicegate.engine.llm.runner import LlmRunner
from voicegate.engine.load.build import load_stages
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

TEXT = "Good morning, and welcome back. The train to the coast leaves at nine."
OTHERS = ("It rains.", "Please wait here until somebody comes for you.", "One, two, three.", "We are closed today.")
BASE = replace(CONFIG, device="cuda", max_active_clauses=24, max_utterances=64, max_flow_batch=8)


@cache
def stages(precision: str = "bfloat16", *, is_eager: bool = False, vocoder: str = "float32") -> Stages:
    model = load_model_config(TINY_MODEL_DIR)
    chosen = config(precision, is_eager=is_eager, vocoder=vocoder)
    return load_stages(chosen, model, load_voices(TINY_MODEL_DIR, model))


def config(precision: str = "bfloat16", *, is_eager: bool = False, vocoder: str = "float32") -> EngineConfig:
    return replace(BASE, precision=precision, kv_dtype=precision, vocoder_precision=vocoder, is_eager=is_eager)


def pcm(heard: Heard) -> npt.NDArray[np.float32]:
    return np.frombuffer(heard.pcm, "<i2").astype(np.float32) / 32768


def spectral_distance(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    """Mean distance of log spectra where there is sound; phases drift, lengths must not."""
    assert len(a) == len(b)
    spectra = [
        torch.stft(torch.from_numpy(x.copy()), 512, 128, window=torch.hann_window(512), return_complex=True).abs()
        for x in (a, b)
    ]
    is_loud = spectra[0] > 0.05
    logs = [spectrum.clamp(min=1e-4).log() for spectrum in spectra]
    return float((logs[0] - logs[1]).abs()[is_loud].mean())


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
@pytest.mark.parametrize("voice", ["woman", "man"])
def test_float32_says_what_the_cpu_says(voice: str, mode: SpeakingMode) -> None:
    """Same weights, same random numbers: the same tokens, hence the same length, and the same sound."""
    cpu = HandDrivenEngine(CONFIG, shipped_stages()).speak("u", [TEXT], voice=voice, mode=mode)
    gpu = HandDrivenEngine(config("float32"), stages("float32")).speak("u", [TEXT], voice=voice, mode=mode)
    assert isinstance(gpu.end, Done)
    assert gpu.end.audio_ms == cpu.end.audio_ms  # type: ignore[union-attr]
    assert spectral_distance(pcm(cpu), pcm(gpu)) < 0.15


def crowd(engine: HandDrivenEngine, seed: int, *, during: Callable[[int], None] = lambda _: None) -> Heard:
    """`u` says TEXT while others come, speak, and are cancelled in the middle."""
    rng = random.Random(seed)
    names = [engine.submit(f"other {number}", seed=number, voice=rng.choice(["woman", "man"])) for number in range(20)]
    subject = engine.submit("u", seed=1)
    engine.core.push_text(subject, TEXT)
    engine.core.end_text(subject)
    for step in range(100_000):
        if step % 3 == 0 and step // 3 < len(names):
            engine.core.push_text(names[step // 3], rng.choice(OTHERS))
            engine.core.end_text(names[step // 3])
        if rng.random() < 0.02:
            engine.core.cancel(rng.choice(names), None)
        during(step)
        if not engine.step() and step // 3 >= len(names):
            break
    return engine.heard[subject]


@pytest.mark.parametrize("seed", range(3))
def test_alone_as_in_a_crowd_that_comes_and_goes(seed: int) -> None:
    """bfloat16: the tokens are the same to the last, the mel within rounding of other batch sizes."""
    loaded = stages()
    alone = HandDrivenEngine(config(), loaded).speak("u", [TEXT])
    engine = HandDrivenEngine(config(), loaded)
    among = crowd(engine, seed)
    assert isinstance(among.end, Done)
    assert among.end.audio_ms == alone.end.audio_ms  # type: ignore[union-attr]
    distance = spectral_distance(pcm(alone), pcm(among))
    print(f"\nalone against crowd {seed}: log spectrum {distance:.4f}")
    assert distance < 0.15
    ends = [heard.end for heard in engine.heard.values()]
    assert all(isinstance(end, Done | Cancelled) for end in ends)


def test_a_storm_of_cancels_leaves_nothing_behind() -> None:
    loaded = stages()
    free = (loaded.llm.num_free_slots, loaded.flow.num_free_blocks, loaded.flow.num_free_batches)
    engine = HandDrivenEngine(config(), loaded)
    rng = random.Random(5)
    for number in range(150):
        name = engine.submit(f"n{number}", seed=number)
        engine.core.push_text(name, rng.choice(OTHERS))
        engine.core.end_text(name)
        for _ in range(rng.randrange(12)):
            engine.step()
        if rng.random() < 0.8:
            engine.core.cancel(name, None)
    engine.run()
    assert all(isinstance(heard.end, Done | Cancelled) for heard in engine.heard.values())
    assert (loaded.llm.num_free_slots, loaded.flow.num_free_blocks, loaded.flow.num_free_batches) == free


def test_graphs_replay_what_eager_launches() -> None:
    with_graphs = HandDrivenEngine(config(), stages()).speak("u", [TEXT])
    eager = HandDrivenEngine(config(is_eager=True), stages(is_eager=True)).speak("u", [TEXT])
    assert eager.pcm == with_graphs.pcm


def test_a_changed_speed_is_the_cpus() -> None:
    cpu = HandDrivenEngine(CONFIG, shipped_stages()).speak("u", [TEXT], speed=1.2)
    gpu = HandDrivenEngine(config("float32"), stages("float32")).speak("u", [TEXT], speed=1.2)
    assert isinstance(gpu.end, Done)
    assert spectral_distance(pcm(cpu), pcm(gpu)) < 0.15


def test_nothing_is_captured_after_the_start() -> None:
    loaded = stages()
    assert isinstance(loaded.llm, LlmRunner)
    parts = (loaded.llm.graphs, loaded.flow.graphs, loaded.vocoder.graphs)
    before = [part.num_graphs for part in parts]
    assert all(before)
    crowd(HandDrivenEngine(config(), loaded), seed=9)
    assert [part.num_graphs for part in parts] == before


@pytest.mark.parametrize("precision", ["float16", "tf32", "bfloat16"])
def test_other_precisions_of_the_vocoder_say_the_same(precision: str) -> None:
    exact = HandDrivenEngine(config(), stages()).speak("u", [TEXT])
    rounded = HandDrivenEngine(config(vocoder=precision), stages(vocoder=precision)).speak("u", [TEXT])
    distance = spectral_distance(pcm(exact), pcm(rounded))
    print(f"\nvocoder {precision}: log spectrum {distance:.4f}")
    assert distance < 0.5
