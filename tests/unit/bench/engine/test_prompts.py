"""bench.engine.prompts: voices of every prompt length, and a run that tells each length's first audio."""

import json
from pathlib import Path

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.bench.engine import prompts
from voicegate.bench.engine.__main__ import UsageError
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice


@pytest.fixture
def voice() -> Voice:
    return load_voices(TINY_MODEL_DIR, load_model_config(TINY_MODEL_DIR))["rms"]


def test_prompts_end_at_every_place_in_a_block(voice: Voice) -> None:
    voices = prompts.shortened(voice, 25)
    assert {each.num_tokens % 25 for each in voices} == set(range(25))
    assert all(len(each.mel) == 2 * each.num_tokens for each in voices)
    assert len({each.name for each in voices}) == 25


def test_a_prompt_that_cannot_be_cut_so_often_is_refused(voice: Voice) -> None:
    with pytest.raises(UsageError, match="a prompt of 69 tokens; 70 are needed"):
        prompts.shortened(voice, 70)


def test_a_run_tells_each_lengths_first_audio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "configure_logs", lambda *_: None)  # logging is the whole process's
    target = tmp_path / "run.json"
    settings = ["--set", "threads=1", "--set", "first_block_tokens=9"]
    arguments = ["--device", "cpu", *settings, "--lengths", "2", "--rounds", "1", "--json", str(target)]
    assert prompts.main(arguments) == 0
    run = json.loads(target.read_text())
    assert list(run["by_prompt_tokens"]) == ["69", "68"]
    assert run["first_audio_ms"]["num"] == 2
    assert run["config"]["first_block_tokens"] == 9
