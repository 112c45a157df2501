"""models/tiny/training: one step of each stage on ten made-up sentences, and the engine loads what comes of it."""

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import time
import wave
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import soundfile
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tokenizers import Tokenizer
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from models.tiny.training import (
    bounded,
    by_part,
    codes,
    distil,
    evaluate,
    export,
    flow,
    hibari_teacher,
    kokoro_teacher,
    kokoro_weights,
    llm,
    lost_words,
    pack,
    prompts,
    question_pitch,
    run,
    shards,
    speech_tokenizer,
    states_of,
    teachers,
    texts,
    vocoder,
)
from models.tiny.training.grammar import sentence
from models.tiny.training.held_out import HELD_OUT
from models.tiny.training.voices import VOICES
from tests.support.golden import TINY_MODEL_DIR
from voicegate.bench import sample_sounds
from voicegate.bench.environment import REPOSITORY
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.torch.offline import WholeSequence
from voicegate.engine.flow.weights import flow_shapes
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.vocoder.weights import load_vocoder_weights
from voicegate.engine.voices.features import PromptAudio, mel_24k
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.tiny_analyser import TinyAnalyser

_FRAMES = 60


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    noise, chance = np.random.default_rng(0), random.Random(0)
    for name, voice in VOICES.items():
        utterances = [
            shards.Utterance(
                text=sentence(chance),
                voice=voice.number,
                mel=noise.normal(-5, 2, (_FRAMES, shards.NUM_MELS)).astype(np.float16),
                samples=noise.normal(0, 3000, _FRAMES * shards.SAMPLES_PER_FRAME).astype(np.int16),
                pitch_hz=np.full(_FRAMES, 120, np.float16),
                symbols=np.full(_FRAMES, 60, np.uint8),
                words=np.arange(_FRAMES, dtype=np.uint8) // 10,
            )
            for _ in range(5)
        ]
        shards.write_shard(directory / f"{name}-0.npz", utterances)
    return directory


def run_each_stage(corpus: Path, state: Path, *more: str) -> None:
    common = ["--corpus", str(corpus), "--state", str(state), "--minutes", "9", "--device", "cpu"]
    common += ["--batch-share", "0.01", *more]
    speech_tokenizer.main(common)
    llm.main([*common, "--tokenizer", str(TINY_MODEL_DIR / "tokenizer.json"), "--readers", "0"])
    flow.main(common)
    distil.main([*common, "--steps", "2"])
    vocoder.main([*common, "--model", str(TINY_MODEL_DIR / "model.json")])


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """States of all stages after a step."""
    state = tmp_path_factory.mktemp("state")
    run_each_stage(corpus, state, "--max-steps", "1")
    return state


def test_a_step_of_each_stage_makes_a_model_that_the_engine_loads(trained: Path, tmp_path: Path) -> None:
    export.export(trained, TINY_MODEL_DIR, tmp_path, flow="distilled_flow", steps=2, guidance=0.0)
    model = load_model_config(tmp_path)
    assert isinstance(model.flow.num_euler_steps, int)
    assert (model.flow.num_euler_steps, model.flow.cfg_rate) == (2, 0.0)
    LlmModel(model.llm, load_state_dict(tmp_path / "llm.safetensors"))
    FlowModel(
        model.flow, load_state_dict(tmp_path / "flow.safetensors"), device=torch.device("cpu"), dtype=torch.float32
    )
    shapes = {name: tuple(each.shape) for name, each in load_state_dict(tmp_path / "flow.safetensors").items()}
    assert shapes == flow_shapes(model.flow) | {"decoder.estimator.rotary_embed.inv_freq": (32,)}, (
        "as upstream's classes"
    )
    load_vocoder_weights(model.vocoder, load_state_dict(tmp_path / "vocoder.safetensors"), device=torch.device("cpu"))
    assert "Kokoro-82M" in (tmp_path / "NOTICE").read_text()
    names = set(load_state_dict(TINY_MODEL_DIR / "speech_tokenizer.safetensors"))
    assert set(load_state_dict(tmp_path / "speech_tokenizer.safetensors")) == names


def test_a_models_states_export_to_that_model(tmp_path: Path) -> None:
    states_of.write(TINY_MODEL_DIR, tmp_path / "state")
    export.export(tmp_path / "state", TINY_MODEL_DIR, tmp_path / "model", flow="flow", steps=6, guidance=0.7)
    for name in ("llm", "flow", "vocoder", "speech_tokenizer"):
        shipped, again = (
            load_state_dict(each / f"{name}.safetensors") for each in (TINY_MODEL_DIR, tmp_path / "model")
        )
        assert shipped.keys() == again.keys()
        for key, weight in shipped.items():  # the factored tables are summed again, and rounded once more
            assert torch.allclose(again[key].float(), weight.float(), rtol=1e-3, atol=5e-4), key
    assert json.loads((tmp_path / "model" / "model.json").read_text())["sampling"]["win_size"] == 1


def test_each_stage_but_the_tokenizer_goes_on_from_a_models_states(corpus: Path, tmp_path: Path) -> None:
    """Without moments it is warmed up as a new one is: two steps hardly move it."""
    states_of.write(TINY_MODEL_DIR, tmp_path)
    before = run.averaged_weights(tmp_path, "flow")
    common = ["--corpus", str(corpus), "--state", str(tmp_path), "--minutes", "9", "--device", "cpu"]
    common += ["--batch-share", "0.01", "--max-steps", "2"]
    llm.main([*common, "--tokenizer", str(TINY_MODEL_DIR / "tokenizer.json"), "--readers", "0"])
    flow.main(common)
    vocoder.main([*common, "--model", str(TINY_MODEL_DIR / "model.json")])
    after = run.averaged_weights(tmp_path, "flow")
    assert max(float((after[name] - before[name]).abs().max()) for name in before) < 1e-3
    assert {path.stem for path in tmp_path.glob("*.pt")} == {*states_of.STAGES, "vocoder_judges"}


def test_the_mel_of_equal_speech_differs_by_nothing_and_by_loudness_as_told() -> None:
    """Twice as loud is ln 2 in each bin above the floor."""
    noise = torch.rand(2, 16_320, generator=torch.Generator().manual_seed(1)) - 0.5
    loss = vocoder.MelLoss(torch.device("cpu"))
    assert loss(noise, noise) == 0
    assert loss(2 * noise, noise).item() == pytest.approx(math.log(2), abs=1e-3)
    every_second = loss._mel(noise[:1])[0, 1::2]  # the model's first two windows hold what mirrors the beginning
    assert torch.allclose(every_second, mel_24k(noise[0])[2 : 2 + len(every_second)], atol=1e-3)


def test_a_voice_is_found_under_its_old_name_too(trained: Path, tmp_path: Path) -> None:
    export.export(trained, TINY_MODEL_DIR, tmp_path, flow="flow", steps=10, guidance=0.7)
    (tmp_path / "voices").mkdir()
    for name in VOICES:
        prompts.write_voice(tmp_path, name, np.random.default_rng(0).normal(0, 3000, 48_000).astype(np.int16))
    found = load_voices(tmp_path, replace(load_model_config(tmp_path), default_voice="woman"))
    assert set(found) == {"woman", "man", "slt", "rms"}
    new, old = found["woman"], found["slt"]
    assert old.description == "female, US English; the old name of woman"
    for one, other in ((new.speech_tokens, old.speech_tokens), (new.mel, old.mel), (new.embedding, old.embedding)):
        torch.testing.assert_close(one, other)
    enroller = TinyAnalyser(tmp_path, [new])
    with wave.open(str(tmp_path / "voices" / "woman_prompt.wav")) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    audio = PromptAudio.from_samples(torch.from_numpy(pcm.astype(np.float32) / 32768), 24_000)
    assert torch.equal(enroller.speech_tokens(audio), new.speech_tokens), "as adding the recording makes them"


def test_a_run_goes_on_where_it_stopped(
    trained: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On another machine too: its state travels in pieces."""
    pack.pack(trained, tmp_path / "pieces", ["tokenizer"])
    pack.unpack(tmp_path / "pieces", tmp_path / "state")
    arguments = ["--corpus", str(corpus), "--state", str(tmp_path / "state"), "--minutes", "9", "--device", "cpu"]
    speech_tokenizer.main([*arguments, "--max-steps", "2", "--batch-share", "0.01"])
    assert "resumed after 1 steps" in capsys.readouterr().out


class _OneTypeToALoss(TorchDispatchMode):
    """A CPU takes a loss of two types; on a GPU its backward fails."""

    def __torch_dispatch__(
        self,
        function: OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        given = {each.dtype for each in args if isinstance(each, torch.Tensor) and each.is_floating_point()}
        assert len(given) < 2 or "_loss" not in function.name(), f"{function.name()} of {given}"
        return function(*args, **(kwargs or {}))


_STAGES = ("tokenizer", "llm", "flow", "distilled_flow", "vocoder", "vocoder_judges")


def test_each_stage_learns_and_goes_on_in_bfloat16(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a GPU. A gradient of another type than its loss ended a stage there, at its first step."""
    with _OneTypeToALoss():
        run_each_stage(corpus, tmp_path, "--bfloat16", "--max-steps", "1")
    first = {name: torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in _STAGES}
    with _OneTypeToALoss():
        run_each_stage(corpus, tmp_path, "--bfloat16", "--max-steps", "2")
    told = capsys.readouterr().out
    for name in _STAGES[:-1]:
        assert f"{name}: resumed after 1 steps" in told
        assert re.search(rf"^{name} .*     2 steps .* skipped 0$", told, re.MULTILINE), "a report of finite losses"
    for name in _STAGES:
        state = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        had = 0 if name == "vocoder_judges" else 1  # a vocoder's first steps are without judges
        assert (first[name]["steps"], state["steps"]) == (had, had + 1)
        moved = [
            not torch.equal(each, first[name]["averaged"][key])
            for key, each in state["averaged"].items()
            if each.isfinite().all()
        ]
        assert len(moved) == len(state["averaged"])
        assert any(moved)


@torch.inference_mode()
@pytest.mark.parametrize("part", ["vocoder", "codes", "flow", "few"])
def test_a_teachers_speech_is_made_again_by_each_part(trained: Path, part: str) -> None:
    torch.manual_seed(0)
    parts = by_part.Parts(trained, TINY_MODEL_DIR, euler_steps=2, few_steps=2)
    mel, prompt = torch.randn(40, shards.NUM_MELS) - 5, torch.randn(20, shards.NUM_MELS) - 5
    made = parts.of(part)(mel, prompt, 1)
    assert made.shape == mel.shape
    assert parts.samples(made).shape == (40 * shards.SAMPLES_PER_FRAME,)


def test_a_part_that_was_not_trained_is_no_measurement(trained: Path, tmp_path: Path) -> None:
    for name in ("tokenizer", "vocoder", "flow"):
        shutil.copy(trained / f"{name}.pt", tmp_path)
    parts = by_part.Parts(tmp_path, TINY_MODEL_DIR, euler_steps=2)
    with pytest.raises(SystemExit, match="has no distilled_flow"):
        parts.of("few")


@torch.inference_mode()
def test_codes_are_decoded_like_what_they_were_made_from() -> None:
    torch.manual_seed(0)
    model = speech_tokenizer.Tokenizer(2)
    mel, voice = torch.randn(3, shards.NUM_MELS, 40) * 3 - 5, torch.tensor([0, 1, 1])
    _, codes = speech_tokenizer.rounded(model.encoder(mel))
    assert len(codes.unique()) > 5
    for found, wanted in zip(model.told(codes, voice), model(mel, voice), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def options_of(state: Path, *more: str) -> argparse.Namespace:
    """A run on the CPU, of nine minutes unless `more` says otherwise."""
    base = ["--corpus", ".", "--state", str(state), "--minutes", "9", "--device", "cpu"]
    return run.parser(None).parse_args([*base, *more])


def test_a_run_that_learns_by_heart_stops_with_its_best_weights(tmp_path: Path) -> None:
    options = options_of(tmp_path)
    model = torch.nn.Linear(1, 1)
    training = run.Run("heart", model, options, rate=0.1)
    for step in training.steps():
        training.update({"loss": model(torch.ones(1)).square().sum()})
        training.judge(abs(step - 3.0))  # best after the fourth
    state = torch.load(tmp_path / "heart.pt", weights_only=True)
    assert state["steps"] == 4
    assert 4 < training.num_steps < 20


def test_a_run_whose_held_out_loss_is_a_little_worse_goes_on(tmp_path: Path) -> None:
    """As the shipped LLM did twice at a rate near its own: both stopped, and went on by hand to a better loss."""
    losses = [2.1007, 2.1180, 2.1132, 2.1197, 2.1194, 2.1156, 2.1228, 2.1148, 2.1163, 2.0529]
    model = torch.nn.Linear(1, 1)
    training = run.Run("heart", model, options_of(tmp_path, "--max-steps", str(len(losses))), rate=0.1)
    for step in training.steps():
        training.update({"loss": model(torch.ones(1)).square().sum()})
        training.judge(losses[step])
    assert torch.load(tmp_path / "heart.pt", weights_only=True)["steps"] == len(losses)


def test_a_run_that_is_told_to_end_saves_what_it_reached(tmp_path: Path) -> None:
    options = options_of(tmp_path)
    model = torch.nn.Linear(1, 1)
    training = run.Run("told", model, options, rate=0.1)
    for step in training.steps():
        training.update({"loss": model(torch.ones(1)).square().sum()})
        if step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
    assert torch.load(tmp_path / "told.pt", weights_only=True)["steps"] == 3


def test_a_run_that_diverges_goes_back_and_spoils_no_saved_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "_REPORT_EVERY_S", -1.0)  # after each step
    monkeypatch.setattr(run, "_FEWEST_STEPS", 1)
    monkeypatch.setattr(run, "_SAVE_EVERY_S", -1.0)
    options = options_of(tmp_path, "--max-steps", "9")
    model = torch.nn.Linear(1, 1, bias=False)
    training = run.Run("wild", model, options, rate=0.1, watched="loss")
    saved = []
    for step in training.steps():
        if step:
            saved.append(torch.load(tmp_path / "wild.pt", weights_only=True))
        if step == 4:
            model.weight.data.fill_(1e6)
        training.update({"loss": 1 + model(torch.ones(1)).square().sum()})
    assert "wild: diverged; back to step 4, at half the rate" in capsys.readouterr().out
    assert [each["steps"] for each in saved] == [1, 2, 3, 4, 4, 6, 7, 8]
    assert max(float(each["averaged"]["weight"].abs().max()) for each in saved) < 2
    assert float(model.weight.detach().abs().max()) < 2
    assert training.num_steps == 9


def test_a_run_that_diverges_slowly_goes_back_to_its_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "_REPORT_EVERY_S", -1.0)  # after each step
    monkeypatch.setattr(run, "_FEWEST_STEPS", 1)
    options = options_of(tmp_path, "--max-steps", "12")
    model = torch.nn.Linear(1, 1, bias=False)
    training = run.Run("slow", model, options, rate=0.0, watched="loss", tolerance=1.02)
    for step in training.steps():
        rise = 0.04 * max(step - 4, 0)  # best after five steps, then 4 % more with each, never by half
        training.update({"loss": 1 + rise + 0 * model(torch.ones(1)).sum()})
    assert "slow: diverged; back to step 5, at half the rate" in capsys.readouterr().out
    assert torch.load(tmp_path / "slow.pt", weights_only=True)["steps"] == 5


def test_the_third_runs_flow_would_have_gone_back_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its losses from step 8,021 on. What was saved then, under a guard of a half, was bad already."""
    monkeypatch.setattr(run, "_REPORT_EVERY_S", -1.0)  # after each step
    monkeypatch.setattr(run, "_SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(run, "_FEWEST_STEPS", 1)
    losses = [0.4953, 0.4850, 0.4864, 0.4884, 0.4873, 0.4890, 0.5104, 0.5165, 0.5341, 0.6922, 0.8752]
    options = options_of(tmp_path, "--max-steps", str(len(losses)))
    model = torch.nn.Linear(1, 1, bias=False)
    training = run.Run("third", model, options, rate=0.0, watched="loss", tolerance=run.TIGHT)
    for step in training.steps():
        training.update({"loss": losses[step] + 0 * model(torch.ones(1)).sum()})
    assert "third: diverged; back to step 6, at half the rate" in capsys.readouterr().out
    assert torch.load(tmp_path / "third.pt", weights_only=True)["steps"] == 6


def test_a_plateau_is_no_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flow's reports near the end of the fourth run varied by 1.2 %."""
    monkeypatch.setattr(run, "_REPORT_EVERY_S", -1.0)  # after each step
    monkeypatch.setattr(run, "_FEWEST_STEPS", 1)
    losses = np.random.default_rng(1).normal(0.43, 0.43 * 0.012, 140)
    options = options_of(tmp_path, "--max-steps", str(len(losses)))
    model = torch.nn.Linear(1, 1, bias=False)
    training = run.Run("flat", model, options, rate=0.0, watched="loss", tolerance=run.TIGHT)
    for step in training.steps():
        training.update({"loss": float(losses[step]) + 0 * model(torch.ones(1)).sum()})
    assert "diverged" not in capsys.readouterr().out


def test_a_batchs_times_are_spread_evenly() -> None:
    torch.manual_seed(0)
    times = flow.spread_evenly(96, torch.device("cpu"))
    assert (times * 96).long().sort().values.tolist() == list(range(96))
    assert abs(float(times[:48].mean()) - 0.5) < 0.1, "each voice has all times"


def test_a_report_over_few_steps_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run's first report is over one step: by chance it may be far below all later ones."""
    monkeypatch.setattr(run, "_REPORT_EVERY_S", -1.0)  # after each step
    options = options_of(tmp_path, "--max-steps", "9")
    model = torch.nn.Linear(1, 1, bias=False)
    training = run.Run("few", model, options, rate=0.0, watched="loss", tolerance=1.02)
    for step in training.steps():
        training.update({"loss": min(step, 1) + 0.1 + 0 * model(torch.ones(1)).sum()})
    assert "diverged" not in capsys.readouterr().out


def test_clauses_are_lines_of_the_training_text_too() -> None:
    """The engine speaks a clause by itself. A model of whole sentences did not end at a comma: it said words twice."""
    line = "Sure, one large coffee, two orange juices,, and a cheese sandwich."
    wanted = ["Sure,", "one large coffee,", "two orange juices,", "and a cheese sandwich."]
    assert texts.clauses(line) == wanted
    assert texts.clauses("It is late.") == ["It is late."]


@torch.no_grad()
def test_queries_and_keys_are_bounded_while_the_flow_is_trained() -> None:
    """Where a few directions of them grow, attention sees one place alone, and the flow diverges."""
    torch.manual_seed(0)
    model = flow.Flow()
    first, second = (block.attn for block in model.decoder.estimator.transformer_blocks[:2])
    small = second.to_k.weight.clone()
    bound = bounded.BoundedAttention(model)
    for _ in range(20):
        first.to_q.weight.add_(0.02)  # a single direction, as it was seen
        bound.hold()
    assert float(torch.linalg.matrix_norm(first.to_q.weight, 2)) == pytest.approx(4.0, rel=0.02)
    torch.testing.assert_close(second.to_k.weight, small, rtol=0, atol=0)


def test_a_run_whose_loss_is_no_number_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_REPORT_EVERY_S", -1.0)  # after each step
    monkeypatch.setattr(run, "_FEWEST_STEPS", 1)
    options = options_of(tmp_path, "--max-steps", "9")
    model = torch.nn.Linear(1, 1, bias=False)
    training = run.Run("nan", model, options, rate=0.1, watched="loss")
    for step in training.steps():
        if step == 4:
            model.weight.data.fill_(torch.nan)
        training.update({"loss": 1 + model(torch.ones(1)).square().sum()})
    assert bool(torch.load(tmp_path / "nan.pt", weights_only=True)["averaged"]["weight"].isfinite())
    assert bool(model.weight.isfinite())


def test_a_run_that_ended_goes_on_with_more_time(tmp_path: Path) -> None:
    """Its rate is higher again: of the whole time less is gone."""
    progress = []
    for minutes, last_step in (("1e-9", "1"), ("9", "2")):
        options = options_of(tmp_path, "--minutes", minutes, "--max-steps", last_step)
        model = torch.nn.Linear(1, 1, bias=False)
        training = run.Run("more", model, options, rate=0.1)
        training.update({"loss": model(torch.ones(1)).square().sum()})
        training.save()
        progress.append(training.progress)
    assert progress[0] == 1
    assert progress[1] < 0.5
    assert torch.load(tmp_path / "more.pt", weights_only=True)["steps"] == 2


def test_another_rate_begins_a_states_time_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fine-tuning: else its rate would be that of a run's end, or with more minutes near the highest again."""
    options = options_of(tmp_path, "--minutes", "1e-9", "--max-steps", "1")
    training = run.Run("fine", torch.nn.Linear(1, 1), options, rate=0.1)
    training.save()
    fine = options_of(tmp_path, "--rate", "0.01")
    training = run.Run("fine", torch.nn.Linear(1, 1), fine, rate=0.1)
    assert training.progress < 0.5
    assert "resumed after 0 steps, its time anew, rate 1.0e-02" in capsys.readouterr().out
    training._elapsed_before_s = 405.0
    training.save()
    training = run.Run("fine", torch.nn.Linear(1, 1), fine, rate=0.1)
    assert 0.75 < training.progress < 0.9, "an interrupted run goes on"
    training.set_rate()
    assert 0 < float(training._rate_in_use) < 0.003


def test_the_rate_of_a_run_falls_until_a_moment(tmp_path: Path) -> None:
    """A driver by the clock need not know how long a state was trained before."""
    now = time.time()
    options = run.parser(None).parse_args(
        ["--corpus", ".", "--state", str(tmp_path), "--until", str(now + 600), "--max-steps", "0", "--device", "cpu"]
    )
    training = run.Run("clock", torch.nn.Linear(1, 1), options, rate=0.1)
    training._elapsed_before_s = 1800.0
    assert list(training.steps()) == []
    assert 0.74 < training.progress < 0.8
    training = run.Run("clock", torch.nn.Linear(1, 1), options, rate=0.1)
    assert 0.74 < training.progress < 0.8, "resumed"
    options.until = math.inf
    with pytest.raises(SystemExit, match="--minutes or --until"):
        run.Run("clock", torch.nn.Linear(1, 1), options, rate=0.1)


def test_crops_that_begin_with_an_utterance_count_from_their_first_sample() -> None:
    """The engine's vocoder begins so. Each utterance began with a tick where losses left out every crop's beginning."""
    frames = np.array([60, 70, 50, 80])
    total = int(frames.sum())
    place = torch.arange(total)
    corpus = shards.Corpus(
        texts=[""] * 4,
        voices=np.array([0, 0, 1, 1]),
        starts=np.cumsum(frames) - frames,
        frames=frames,
        arrays={
            "mel": place[:, None].expand(-1, shards.NUM_MELS),
            "pitch_hz": place,
            "samples": place.repeat_interleave(shards.SAMPLES_PER_FRAME).to(torch.int32),
        },
    )
    crops = vocoder.Crops(corpus, torch.device("cpu"), batch=24)
    mel, pitch, samples = crops.batch()
    assert pitch.tolist() == mel[:, 0, : pitch.shape[1]].tolist()
    first = crops.counted(pitch)[:, 0].long()
    heard = (crops.counted(samples) * 32767).round().long()
    assert heard[:, 0].tolist() == first.tolist()
    assert (heard[:, -1] - first).tolist() == [vocoder._MAIN - 1] * 24
    begins_within = first[:, None] - torch.from_numpy(corpus.starts)
    is_beginning = (mel[:, 0, 0].long() == first).tolist()
    assert is_beginning == [*[True] * 3, *[False] * 9] * 2, "of each voice"
    assert all(((row >= 0) & (row < 4)).any() for row in begins_within[torch.tensor(is_beginning)])
    voice = torch.searchsorted(torch.from_numpy(np.cumsum(frames)), first, right=True) // 2
    assert voice.tolist() == [0] * 12 + [1] * 12


def test_words_that_are_lost_are_told_by_place_and_kind() -> None:
    """Only what the teacher's speech does not lose too: that is the recogniser's."""
    text = "Nobody knew the answer, not even the man who had written the question."
    heard = "nobody knew the answer would not even a man who written the questions"
    told = "nobody knew the answer not even the man who had ridden the question"
    model = {"sentences": [{"text": text, "heard": heard, "words": 13}]}
    counts = lost_words.counted(model, {"sentences": [{"text": text, "heard": told}]})
    assert counts == {
        "words": 13,
        "words in questions": 0,
        "errors": 4,
        "the recogniser's own": 1,  # "had", beside a word that the teacher loses
        "in statements": 3,
        "more words after a clause": 1,
        "within a clause": 1,
        "another word heard": 1,
        "last word of a clause": 1,
        "an s more": 1,
    }


def test_sentences_are_measured_by_the_recogniser_that_is_asked_for() -> None:
    pcm, rate_hz = soundfile.read(REPOSITORY / "docs/sounds/woman.mp3", dtype="int16")
    assert rate_hz == evaluate.RATE_HZ
    measured = evaluate.measured(lambda _text, _seed: pcm, (sample_sounds.TEXT,), "whisper")
    assert (measured["recogniser"], measured["errors"], measured["words"]) == ("whisper", 0, 17)


def test_utterances_of_one_length_are_spoken_together() -> None:
    """The decoder normalises over an utterance's whole time: one that is padded would sound different."""
    sized = [(4, 0), (9, 1), (4, 2), (4, 3), (0, 4)]
    assert list(kokoro_teacher._batches(sized, most=8)) == [[1], [3, 2], [0], [4]]


@pytest.mark.parametrize(
    ("text", "ends", "expected"),
    [
        ("on.", [20, 60, 70, 90], (60, 70)),
        ("on", [20, 60, 70, 90], (60, 70)),  # no mark: the blank
        ("ˈa !?", [10, 20, 30, 40, 60, 90], (20, 60)),
    ],
)
def test_what_kokoro_says_after_an_utterance_is_cut_off_in_its_last_pause(
    text: str, ends: list[int], expected: tuple[int, int]
) -> None:
    """It is said since Kokoro-82M adds a sound to what it says last."""
    assert kokoro_teacher._last_pause(text, np.array(ends)) == expected


def test_speech_is_cut_at_the_quietest_place_of_a_pause() -> None:
    samples = np.full(300 * 100, 0.1, np.float32)
    samples[300 * 64 : 300 * 66] = 0.0
    samples[300 * 80 :] = 0.0  # behind the pause
    numbers = np.arange(100, dtype=np.uint8)
    whole = teachers.Spoken(samples, numbers.astype(np.float32), numbers, numbers)
    cut = kokoro_teacher._cut(whole, 60, 70)
    assert 63 <= len(cut.pitch_hz) <= 66
    assert len(cut.samples) == 300 * len(cut.pitch_hz) == 300 * len(cut.symbols) == 300 * len(cut.words)


@pytest.mark.parametrize(
    ("phonemes", "questions"),
    [
        ("ˌɪz ðˈæt ˌOkˈA?", ["ˌɪz ðˈæt ˌOkˈA"]),
        ("jˌu wˈɑnt tə ɡˌO, ɹˈIt?", ["jˌu wˈɑnt tə ɡˌO, ɹˈIt"]),
        ("ˌI nˈO. kæn ju kˈʌm? jˈɛs.", [" kæn ju kˈʌm"]),
        ("wˌɛɹ ɪz ˈɑnə?", []),  # where
        ("wˌʌts ðˈæt?", []),  # what's
        ("sˈɔɹi, hˌu ɪz ɪt?", []),  # who, after a clause
        ("ænd hˌW ɑɹ ju?", []),  # and how
        ("ɪn wˌɪʧ ɹˈum?", []),  # in which
        ("tu hˌum?", []),  # to whom
        ("ˌO; wˌɛnz ɪt?", []),  # when's, after another mark
        ("wˌI nˈɑt?", []),
        ("ɪz ðˈæt wˌʌt ju wˈɑnt?", ["ɪz ðˈæt wˌʌt ju wˈɑnt"]),  # is that what
        ("tˈi ˌɔɹ kˈɔfi?", []),  # or
        ("ˌɪz ðˈæt ˌOkˈA", []),
        ("?", []),
    ],
)
def test_questions_that_yes_or_no_answers_are_found(phonemes: str, questions: list[str]) -> None:
    found = question_pitch.yes_no_questions(phonemes)
    assert [phonemes[first:mark] for first, mark in found] == questions


def raised(phonemes: str, pitch_hz: np.ndarray, level_db: np.ndarray) -> np.ndarray:
    """Ten values a symbol, 80 a second, after five that the teachers' phonemes are late."""
    return question_pitch.rising(pitch_hz, level_db, phonemes, 5 + 10 * np.arange(len(phonemes) + 1), 80)


def test_a_question_rises_from_its_last_stressed_vowel_to_where_it_is_faint() -> None:
    phonemes = "ɪz ˈɑnə?"
    pitch_hz, level_db = np.full(85, 100, np.float32), np.zeros(85, np.float32)
    pitch_hz[75:], level_db[70:] = 0, -40
    after = raised(phonemes, pitch_hz, level_db)
    assert after[:30].tolist() == pitch_hz[:30].tolist(), "nothing changes before the vowel"
    assert after[31:37].min() < 95, "it falls a little first"
    assert (np.diff(after[37:70]) > 0).all()
    assert after[69:75] == pytest.approx(100 * 2 ** (7.5 / 12), rel=0.01)
    assert after[75:].tolist() == [0] * 10, "no voice comes where none was"


def test_a_question_without_a_strong_stress_rises_from_its_last_weak_one() -> None:
    pitch_hz = np.full(75, 100, np.float32)
    after = raised("ˌɪz ɪt?", pitch_hz, np.zeros(75, np.float32))
    assert after[69] > 140


def test_the_pitch_of_a_short_vowel_does_not_leap() -> None:
    """A stop of 50 ms is no place for nine semitones: it begins higher."""
    level_db = np.zeros(85, np.float32)
    level_db[46:] = -40
    notes = 12 * np.log2(raised("ɪz ˈɑnə?", np.full(85, 100, np.float32), level_db)[35:47] / 100)
    assert np.diff(notes).max() < 50 / 80 + 0.1


def test_a_vowel_of_two_values_is_left_alone() -> None:
    pitch_hz, level_db = np.full(85, 100, np.float32), np.zeros(85, np.float32)
    level_db[33:] = -40
    assert raised("ɪz ˈɑnə?", pitch_hz, level_db).tolist() == pitch_hz.tolist()


def test_a_teachers_durations_say_where_a_question_rises() -> None:
    """The pauses before and after the text have durations, too."""
    phonemes = "ɪz ˈɑ? nˈoʊ."
    durations = np.array([7, *[4] * len(phonemes), 9])
    pitch_hz, vocabulary = np.full(durations.sum(), 100, np.float32), dict.fromkeys(phonemes, 1)
    after = teachers.with_raised_questions(
        pitch_hz, np.zeros(len(pitch_hz), np.float32), phonemes, vocabulary, durations
    )
    # The stress mark is the fourth symbol, the question mark the sixth. Both teachers are five values late.
    assert np.flatnonzero(after != pitch_hz).tolist() == list(range(7 + 3 * 4 - 5, 7 + 6 * 4 - 5))


class PlainSynthesis:
    """In place of hibari's network and synthesis, which are not installed for tests: the samples are the pitch."""

    vocab: Final = dict.fromkeys("ɪz ˈɑnə?.", 1)

    def ids(self, phonemes: str) -> list[int]:
        return [0] * (len(phonemes) + 2)

    def run(self, _: None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        num_symbols = feeds["ids"].shape[1]
        spectra = [np.full((1, 601, 10 * num_symbols), value, np.float32) for value in (0, 0, 0, -9, 0)]
        return [*spectra, np.full((1, 10 * num_symbols), 100, np.float32), np.full((1, num_symbols), 5)]

    def synth(self, *parts: np.ndarray) -> np.ndarray:
        return np.repeat(parts[5], teachers.PITCH_HOP)


def test_what_hibari_says_and_what_is_told_of_it_rise() -> None:
    voice = object.__new__(hibari_teacher.Hibari)
    voice._hibari = voice._dsp = voice._session = PlainSynthesis()
    voice._random = None
    asked, told = voice.speak("ɪz ˈɑnə?"), voice.speak("ɪz ˈɑnə.")
    assert asked.samples.max() > 150
    assert asked.pitch_hz.tolist() == asked.samples[:: teachers.PITCH_HOP].tolist()
    assert set(told.samples) == set(told.pitch_hz) == {100}


@pytest.mark.parametrize("phonemes", ["ɪz ˈɑnə.", "ɪz ɑnəə?"])
def test_statements_and_what_has_no_stress_stay_as_they_were(phonemes: str) -> None:
    pitch_hz = np.linspace(120, 90, 85, dtype=np.float32)
    assert raised(phonemes, pitch_hz, np.zeros(85, np.float32)).tolist() == pitch_hz.tolist()


def test_a_silent_question_is_left_alone() -> None:
    assert raised("ɪz ˈɑnə?", np.zeros(85, np.float32), np.full(85, -120, np.float32)).tolist() == [0] * 85


def test_a_creak_becomes_harmonics_of_its_loudness() -> None:
    """hibari's last syllables follow no pitch: most of them lies in the free part of the spectrum."""
    spectra = [np.full((601, 20), value, np.float32) for value in (-6.0, 0.3, -8.0, -2.0, 1.0)]
    pitch_hz, changed = np.full(20, 200, np.float32), np.arange(12, 20)
    harmonic, phase, noise, free, _ = hibari_teacher._with_clear_pitch(spectra, pitch_hz, changed)
    energy = np.exp(2 * harmonic[70, 15]) * 1.5 * 20 / 200  # a harmonic each ten bins of 20 Hz
    assert energy == pytest.approx(np.exp(-4) + np.exp(-12) * 0.15, rel=0.01)
    assert (phase[:, 12:] == 0).all()
    assert (free[:150, 12:] < -20).all()
    assert (noise == -8).all()
    assert all(
        (part[:, :12] == before[:, :12]).all()
        for part, before in zip((harmonic, phase, free), (spectra[0], spectra[1], spectra[3]), strict=True)
    )


def test_a_voiced_end_is_left_as_hibari_made_it() -> None:
    spectra = [np.full((601, 20), value, np.float32) for value in (0.0, 0.3, -8.0, -6.0, 1.0)]
    assert hibari_teacher._with_clear_pitch(spectra, np.full(20, 200, np.float32), np.arange(12, 20)) is spectra


@torch.no_grad()
def test_the_vocoders_inverse_transform_is_torchs() -> None:
    model = vocoder.Vocoder(load_model_config(TINY_MODEL_DIR).vocoder)
    filtered = torch.randn(2, 18, 121)
    magnitude, phase = filtered.chunk(2, dim=1)
    spectrum = torch.polar(magnitude.clamp(max=4.6).exp(), torch.sin(phase))
    wanted = torch.istft(spectrum, 16, 4, window=model.window)
    # The first and last eight are under fewer than four windows: torch alone makes up for that.
    torch.testing.assert_close(model.samples(filtered)[:, 8:-8], wanted[:, 8:-8], rtol=1e-5, atol=1e-5)


def test_the_llm_goes_on_from_stored_codes_alone(corpus: Path, trained: Path, tmp_path: Path) -> None:
    codes.main(["--corpus", str(corpus), "--state", str(trained), "--output", str(tmp_path / "codes.npz")])
    stored, told = codes.load(tmp_path / "codes.npz"), codes.of_corpus(corpus, trained, torch.device("cpu"), 1.0)
    assert (stored.texts, stored.voices.tolist()) == (told.texts, told.voices.tolist())
    assert [each.tolist() for each in stored.codes] == [each.tolist() for each in told.codes]
    arguments = [
        "--corpus",
        str(tmp_path / "codes.npz"),
        "--state",
        str(tmp_path),
        "--minutes",
        "9",
        "--max-steps",
        "1",
    ]
    arguments += ["--batch-share", "0.01", "--readers", "0", "--tokenizer", str(TINY_MODEL_DIR / "tokenizer.json")]
    llm.main(arguments)
    assert (tmp_path / "llm.pt").exists()


def test_utterances_of_the_last_corpus_are_held_out(corpus: Path, trained: Path, tmp_path: Path) -> None:
    """A state may have learnt from the one before."""
    codes.main(["--corpus", str(corpus), "--state", str(trained), "--output", str(tmp_path / "codes.npz")])
    arguments = ["--corpus", str(tmp_path / "codes.npz"), str(corpus), "--state", str(trained), "--minutes", "9"]
    parser = run.parser(None, num_corpora="+")
    trainer = llm._Trainer(parser.parse_args([*arguments, "--device", "cpu"]))
    own, held_out = trainer.split()
    assert sorted([*own, *held_out]) == list(range(20))
    assert len(held_out) == 1
    assert held_out[0] >= 10


def told(texts: list[str], num_codes: int, voices: np.ndarray | None = None) -> codes.Told:
    """All with the same codes. Their words are equally long."""
    number = np.zeros(len(texts), np.int64) if voices is None else voices
    words = [(np.arange(num_codes) * len(text.split()) // num_codes).astype(np.uint8) for text in texts]
    return codes.Told(texts, number, [np.full(num_codes, each) for each in number], words)


def test_documents_end_with_commas() -> None:
    """Else a clause that stands alone is gone on with: the engine speaks each by itself."""
    documents = llm.Documents(
        told(["One two,", "Three four."] * 4, 6), TINY_MODEL_DIR / "tokenizer.json", list(range(8)), batch=1, seed=1
    )
    tokenizer = Tokenizer.from_file(str(TINY_MODEL_DIR / "tokenizer.json"))
    rng = random.Random(0)
    drawn = [documents._document(rng, tokenizer, tokenizer, 4) for _ in range(300)]
    ends = Counter(tokenizer.decode(each.text[-1])[-1] for each in drawn)
    assert ends[","] > 100
    assert ends["."] > 20


def test_a_document_of_growing_text_needs_no_more_places_than_the_whole_one() -> None:
    """Byte pairs are cut anew then. By dropout they became more, one more than a full row had room for."""
    texts = told(["One two three four five."] * 4, 40)
    documents = llm.Documents(texts, TINY_MODEL_DIR / "tokenizer.json", list(range(4)), batch=1, seed=1)
    plain, dropping = (Tokenizer.from_file(str(TINY_MODEL_DIR / "tokenizer.json")) for _ in range(2))
    dropping.model.dropout = 0.5
    rng = random.Random(0)
    for num_prefix in range(440, 448):  # the document's room: from 65 to 72 places
        for _ in range(300):
            document = documents._document(rng, plain, dropping, num_prefix)
            assert num_prefix + 3 + sum(map(len, [*document.text, *document.codes])) <= 512


def test_documents_of_growing_text_end_where_its_known_words_are_said() -> None:
    """As the engine reads a text that is still being written: the LLM's end tells that it needs more of it."""
    path = TINY_MODEL_DIR / "tokenizer.json"
    documents = llm.Documents(told(["One two three four five."] * 4, 50), path, list(range(4)), batch=200, seed=1)
    tokenizer = Tokenizer.from_file(str(path))
    rng = random.Random(0)
    drawn = [documents._document(rng, tokenizer, tokenizer, 4) for _ in range(400)]
    growing = [each for each in drawn if each.is_growing]
    assert 40 < len(growing) < 120
    said = {tokenizer.decode(each.text[-1]).strip().lower(): len(each.codes[-1]) for each in growing}
    assert said == {"one two": 20, "one two three": 30, "one two three four": 40}
    assert all(len(each) == 50 for document in growing for each in document.codes[1:-1])
    _, _, _, targets, _ = next(iter(documents))
    for row in targets:
        assert row[row != llm._IGNORED][-1] == llm._SPECIAL_BASE + llm.EOS


def test_words_are_told_where_their_blanks_begin() -> None:
    """Both teachers are five values late. The last word is never told."""
    durations = np.array([7, *[4] * 6, 9])
    num_values = int(durations.sum())
    samples, pitch = np.zeros(num_values * teachers.PITCH_HOP, np.float32), np.zeros(num_values, np.float32)
    spoken = teachers.labelled(samples, pitch, "a bc, a"[:6], dict.fromkeys("abc, ", 1), durations)
    assert spoken.words.tolist() == [0] * 6 + [1] * (4 * 4) + [2] * (num_values - 22)


def test_a_text_that_was_read_as_other_words_is_not_cut() -> None:
    document = llm._Document([[1, 2, 3, 4, 5]], [np.zeros(9, np.int64)])
    plain = Tokenizer.from_file(str(TINY_MODEL_DIR / "tokenizer.json"))
    document.cut("One two three.", np.array([0, 1, 1, 1, 2, 2, 2, 3, 3], np.uint8), random.Random(0), plain)
    assert not document.is_growing


@pytest.mark.parametrize(("woman", "man", "share"), [(30, 10, 0.5), (30, 3, 12 / 42)])
def test_voices_come_in_equal_shares(woman: int, man: int, share: float) -> None:
    """The man had 29 % of the speech. He lost 41 words of 170, and the woman 16; after equal shares 27 and 24."""
    number = np.array([0] * woman + [1] * man)
    texts = told(["One two."] * len(number), 6, number)
    documents = llm.Documents(texts, TINY_MODEL_DIR / "tokenizer.json", list(range(len(number))), batch=1, seed=1)
    tokenizer = Tokenizer.from_file(str(TINY_MODEL_DIR / "tokenizer.json"))
    rng = random.Random(0)
    drawn = [documents._document(rng, tokenizer, tokenizer, 4).codes[-1][0] for _ in range(400)]
    assert sum(drawn) / len(drawn) == pytest.approx(share, abs=0.08)


@torch.no_grad()
def test_the_decoder_learns_from_the_codes_that_are_stored() -> None:
    """Quiet frames are told by their loudness: the decoder must hear that code for them, not the encoder's own."""
    torch.manual_seed(0)
    model = speech_tokenizer.Tokenizer(2)
    mel = torch.randn(40, 80)
    mel[10:18] = speech_tokenizer.SILENT_BELOW - 1
    codes = speech_tokenizer.codes_of(model.encoder, mel)
    assert (codes[5:9] == speech_tokenizer.SILENT_CODE).all()
    voice = torch.tensor([1])
    for told, trained in zip(model.told(codes[None], voice), model(mel.T[None], voice), strict=True):
        torch.testing.assert_close(told, trained, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_loss_is_upstreams_softmax() -> None:
    """Rows of codes and of phases, trained apart, give the scores of the exported table over all 6761 ids."""
    torch.manual_seed(0)
    model = llm.SpeechLlm()
    token_of = torch.randperm(6561)[: speech_tokenizer.NUM_CODES * speech_tokenizer.PHASES]
    weights = export.llm_weights(dict(model.state_dict()), token_of)
    hidden = torch.randn(4, llm.HIDDEN)
    codes, phases = torch.tensor([0, 17, 575, speech_tokenizer.NUM_CODES + llm.EOS]), torch.tensor([1, 0, 1, 0])
    ids = torch.cat((token_of[codes[:3] * speech_tokenizer.PHASES + phases[:3]], torch.tensor([6562])))
    scores = (hidden @ weights["llm_decoder.weight"].T).log_softmax(1)
    expected = -scores.gather(1, ids[:, None])[:, 0]
    torch.testing.assert_close(model.loss(hidden, codes, phases), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_trained_flow_is_the_engines() -> None:
    torch.manual_seed(0)
    config = load_model_config(TINY_MODEL_DIR).flow
    trained = flow.Flow()
    for parameter in trained.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.05)  # many begin as zeros, which would hide a difference
    token_of = torch.randperm(6561)[: speech_tokenizer.NUM_CODES * speech_tokenizer.PHASES]
    weights = export.flow_weights(dict(trained.state_dict()), token_of, 6561, config.estimator.head_dim)
    engine = FlowModel(config, weights, device=torch.device("cpu"), dtype=torch.float32)
    codes = torch.randint(speech_tokenizer.NUM_CODES, (1, 40))
    tokens = token_of[codes[0] * speech_tokenizer.PHASES + torch.arange(40) % speech_tokenizer.PHASES].tolist()
    embedding, frames, step = flow.speaker_embeddings()[:1], 80, config.num_euler_steps // 2
    x, cond = torch.randn(1, frames, 80), torch.randn(1, frames, 80)
    mu = engine.mu([engine.token_window(tokens, 0, 40)])
    base = engine.estimator.input_base(cond, mu, engine.speaker_bias(embedding[0])[None])
    context = WholeSequence(frames, streaming=True, device=torch.device("cpu"))
    wanted = engine.estimator.velocity(x, base, engine.rotations[None, :frames], step=step, context=context)[0]
    made_mu, speaker = trained.conditions(codes, embedding)
    mask = flow.block_mask(frames, torch.device("cpu"), is_streaming=True)
    found = trained.decoder.estimator(x, made_mu, speaker, cond, torch.tensor([engine.schedule.times[step]]), mask)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_quantised_export_is_read_back_into_torchs_modules() -> None:
    """A convolution by its node's name; an LSTM, whose gates ONNX has in another order, by what it computes."""
    noise = np.random.default_rng(0)
    into = {
        "/decoder/out/Mul_quantized": noise.integers(0, 255, (3, 2, 1), np.uint8),
        "/decoder/out/Mul_scale": np.array(0.5, np.float32),
        "/decoder/out/Mul_zero_point": np.array(7, np.uint8),
        "encoder.lstm.bias": np.ones(5, np.float32),
        "w_quantized": noise.integers(-99, 99, (2, 3, 16), np.int8),
        "r_quantized": noise.integers(-99, 99, (2, 4, 16), np.int8),
        "b": noise.normal(size=(2, 32)).astype(np.float32),
        "scales": np.full(2, 0.01, np.float32),
        "zeros": np.zeros(2, np.int8),
    }
    lstm = ["x", "w_quantized", "r_quantized", "b", "", "", "", "", "scales", "zeros", "scales", "zeros"]
    nodes = [
        helper.make_node(
            "ConvInteger", ["x", *list(into)[:1], "z", list(into)[2]], ["y"], "/decoder/out/out.0/Conv_quant"
        ),
        helper.make_node("DynamicQuantizeLSTM", lstm, ["h"], "/encoder/shared/LSTM_quant"),
    ]
    graph = helper.make_graph(
        nodes, "export", [], [], [numpy_helper.from_array(each, name) for name, each in into.items()]
    )
    shared = torch.nn.LSTM(3, 4, bidirectional=True)
    shapes = {f"predictor.shared.{name}": tuple(value.shape) for name, value in shared.state_dict().items()}
    state = kokoro_weights.torch_state(graph, shapes | {"out.0.weight": (3, 2, 1), "lstm.bias": (5,)})
    assert set(state) == {*shapes, "out.0.weight", "lstm.bias"}
    wanted = (into["/decoder/out/Mul_quantized"].astype(np.float32) - 7) * 0.5
    np.testing.assert_array_equal(state["out.0.weight"].numpy(), wanted)
    shared.load_state_dict({name.removeprefix("predictor.shared."): state[name] for name in shapes})
    x = noise.normal(size=(6, 1, 3)).astype(np.float32)
    told = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=4, direction="forward")],
        "lstm",
        [helper.make_tensor_value_info("x", 1, (6, 1, 3))],
        [helper.make_tensor_value_info("y", 1, None)],
        [
            numpy_helper.from_array(into["w_quantized"][:1].astype(np.float32).transpose(0, 2, 1) * 0.01, "w"),
            numpy_helper.from_array(into["r_quantized"][:1].astype(np.float32).transpose(0, 2, 1) * 0.01, "r"),
            numpy_helper.from_array(into["b"][:1], "b"),
        ],
    )
    (y,) = ReferenceEvaluator(helper.make_model(told)).run(None, {"x": x})
    with torch.no_grad():
        found = shared(torch.from_numpy(x))[0][..., :4]
    np.testing.assert_allclose(found.numpy(), y[:, 0], rtol=1e-4, atol=1e-5)


def test_no_held_out_sentence_is_one_that_the_grammar_makes() -> None:
    chance = random.Random(5)
    made = {sentence(chance).lower().rstrip(".?!") for _ in range(20_000)}
    assert not made & {text.lower().rstrip(".?!") for text in HELD_OUT}
