"""`voicegate voices` on a model directory: every action, every refusal in one line, and never half a file."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.golden import TINY_MODEL_DIR
from tests.support.patience import PATIENCE_S
from tests.support.tiny_engine import CONFIG
from voicegate.engine.load.start_voices import default_of
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices
from voicegate.gateway.cli import main
from voicegate.gateway.cli.checks.model import check_model

Captured = pytest.CaptureFixture[str]
RECORDING = str(TINY_MODEL_DIR / "voices" / "woman_prompt.wav")
TEXT = "Hello there, it is very nice to meet you."


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copies the parts of the tiny model that voices are made with."""
    directory = tmp_path / "model"
    (directory / "voices").mkdir(parents=True)
    for name in ("model.json", "speech_tokenizer.safetensors", "voices/woman.safetensors", "voices/man.safetensors"):
        shutil.copy(TINY_MODEL_DIR / name, directory / name)
    return directory


def run(capsys: Captured, *arguments: object) -> tuple[int, str, str]:
    status = main.run(["voices", *map(str, arguments)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def refusal(capsys: Captured, *arguments: object) -> str:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (main.EXIT_FAILED, "")
    assert err.count("\n") == 1
    return err


def voice_files(model_dir: Path) -> list[str]:
    return sorted(path.name for path in (model_dir / "voices").iterdir())


@pytest.mark.parametrize("action", [[], ["list"]])
def test_the_list_marks_the_default(capsys: Captured, copy: Path, action: list[str]) -> None:
    assert run(capsys, *action, "--model", copy) == (0, "  man    male, US English\n* woman  female, US English\n", "")


def test_the_mark_is_at_the_servers_default_where_the_model_names_none(capsys: Captured, copy: Path) -> None:
    """By name, not by file: - sorts before . and - after nothing."""
    raw = json.loads((copy / "model.json").read_text())
    del raw["default_voice"]
    (copy / "model.json").write_text(json.dumps(raw))
    for name, new in (("woman", "anna"), ("man", "anna-2")):
        (copy / "voices" / f"{name}.safetensors").rename(copy / "voices" / f"{new}.safetensors")
    marked = [line[2:8].strip() for line in run(capsys, "--model", copy)[1].splitlines() if line.startswith("*")]
    assert marked == ["anna"]
    config = replace(CONFIG, model_dir=copy)
    model = load_model_config(copy)
    assert default_of(config, model, load_voices(copy, model)) == "anna"


def test_hidden_files_are_no_voices(capsys: Captured, copy: Path) -> None:
    """As macOS leaves them beside what it copies."""
    (copy / "voices" / "._woman.safetensors").write_bytes(b"\0\5\26\7" + bytes(100))
    (copy / "voices" / "._anna.wav").write_bytes(bytes(100))
    (copy / "voices" / "._anna.txt").write_bytes(bytes(100))
    assert len(run(capsys, "--model", copy)[1].splitlines()) == 2
    assert len(load_voices(copy, load_model_config(copy))) == 2
    assert "FAIL" not in {found.level.value for found in check_model(copy) if found.subject.startswith("voice")}


def test_the_directory_may_stand_before_the_action(capsys: Captured, copy: Path) -> None:
    (copy / "voices" / "man.safetensors").unlink()
    assert run(capsys, "--model-dir", copy, "list")[1] == "* woman  female, US English\n"


def test_show_tells_what_a_voice_is(capsys: Captured, copy: Path) -> None:
    status, out, _ = run(capsys, "show", "woman", "--model", copy)
    assert status == 0
    for fact in ("female, US English", TEXT, "2.28 s, 57 speech tokens", str(copy / "voices" / "woman.safetensors")):
        assert fact in out


def test_a_voice_is_added_shown_exported_and_removed(capsys: Captured, copy: Path, tmp_path: Path) -> None:
    status, out, err = run(capsys, "add", "anna", "--wav", RECORDING, "--text", TEXT, "--description", "me",
                           "--model", copy)  # fmt: skip
    assert status == 0
    assert "prompt of 2.28 s, 57 speech tokens" in out
    assert "shorter than 3 s" in err
    assert "* woman" in run(capsys, "--model", copy)[1]
    assert TEXT in run(capsys, "show", "anna", "--model", copy)[1]
    target = tmp_path / "copy.safetensors"
    assert run(capsys, "export", "anna", target, "--model", copy)[0] == 0
    assert target.read_bytes() == (copy / "voices" / "anna.safetensors").read_bytes()
    assert run(capsys, "export", "anna", tmp_path, "--model", copy)[0] == 0
    assert (tmp_path / "anna.safetensors").read_bytes() == target.read_bytes()
    assert run(capsys, "remove", "anna", "--model", copy)[0] == 0
    assert voice_files(copy) == ["man.safetensors", "woman.safetensors"]


def test_the_text_may_come_from_a_file_or_not_at_all(capsys: Captured, copy: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text(TEXT + "\n")
    run(capsys, "add", "anna", "--wav", RECORDING, "--text-file", text, "--model", copy)
    assert TEXT in run(capsys, "show", "anna", "--model", copy)[1]
    status, _, err = run(capsys, "add", "anna", "--wav", RECORDING, "--replace", "--model", copy)
    assert status == 0
    assert "no transcript" in err
    assert "(none: for use across languages)" in run(capsys, "show", "anna", "--model", copy)[1]


def test_silence_around_a_recording_is_left_out_and_told(capsys: Captured, copy: Path, tmp_path: Path) -> None:
    samples, rate_hz = soundfile.read(RECORDING)
    path = tmp_path / "silent.wav"
    soundfile.write(path, np.pad(samples, (4 * rate_hz, 2 * rate_hz)), rate_hz)
    status, out, err = run(capsys, "add", "anna", "--wav", path, "--text", TEXT, "--model", copy)
    assert status == main.EXIT_OK
    assert re.search(r"silence was left out: 3\.\d\d s at the start and 1\.\d\d s at the end", err)
    assert re.search(r"prompt of 2\.\d\d s", out)


def test_a_voice_in_the_place_of_a_pairs_does_not_stop_the_next_start(capsys: Captured, copy: Path) -> None:
    shutil.copy(RECORDING, copy / "voices" / "anna.wav")
    (copy / "voices" / "anna.txt").write_text(TEXT)
    model = load_model_config(copy)
    assert load_voices(copy, model)["anna"].transcript == TEXT
    assert run(capsys, "add", "anna", "--wav", RECORDING, "--replace", "--model", copy)[0] == 0
    assert not load_voices(copy, model)["anna"].transcript


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["add", "woman", "--wav", RECORDING], "woman.safetensors exists: --replace overwrites it"),
        (["add", "../x", "--wav", RECORDING], "cannot be a voice's name"),
        (["add", "x", "--wav", "/nowhere.wav"], "/nowhere.wav cannot be read: No such file"),
        (["add", "x", "--wav", "/dev/zero"], "/dev/zero cannot be read: it is no regular file"),
        (["add", "x", "--wav", RECORDING, "--text-file", "/dev/zero"], "/dev/zero cannot be read: it is no regular"),
        (["add", "x", "--wav", __file__], "no sound file that can be read"),
        (["add", "x", "--wav", RECORDING, "--text", "<|endofprompt|>"], "the model's own marks"),
        (["add", "x", "--wav", RECORDING, "--text-file", "/nowhere.txt"], "/nowhere.txt cannot be read"),
        (["show", "nobody"], "has no voice 'nobody'; it has man, woman"),
        (["remove", "nobody"], "has no voice 'nobody'"),
        (["remove", "woman"], "'woman' is the default voice"),
        (["export", "woman", "/nowhere/x"], "/nowhere/x cannot be written"),
        (["export", "woman", __file__], "exists: --replace overwrites it"),
    ],
)
def test_refusals_are_one_line_and_change_nothing(
    capsys: Captured, copy: Path, arguments: list[str], reason: str
) -> None:
    before = {name: (copy / "voices" / name).read_bytes() for name in voice_files(copy)}
    assert reason in refusal(capsys, *arguments, "--model", copy)
    assert {name: (copy / "voices" / name).read_bytes() for name in voice_files(copy)} == before


@pytest.mark.parametrize(
    ("wav", "part"),
    [("/dev/zero", "no regular file"), (__file__, "no sound file that can be read"), ("/nowhere.wav", "No such file")],
)
def test_what_is_no_sound_file_is_refused_before_anything_is_loaded(copy: Path, wav: str, part: str) -> None:
    asked = ["voices", "add", "x", "--wav", wav, "--model", str(copy)]
    code = f"import sys; from voicegate.gateway.cli.main import run; run({asked!r}); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert part in done.stderr


def test_the_last_voice_stays(capsys: Captured, copy: Path) -> None:
    (copy / "voices" / "woman.safetensors").unlink()
    assert "'man' is the only voice" in refusal(capsys, "remove", "man", "--model", copy)


def test_a_model_with_fixed_voices_says_so(capsys: Captured, copy: Path) -> None:
    (copy / "speech_tokenizer.safetensors").unlink()
    assert "has fixed voices" in refusal(capsys, "add", "x", "--wav", RECORDING, "--model", copy)


def test_removing_half_of_a_pair_is_told(capsys: Captured, copy: Path) -> None:
    for name in ("man.wav", "man.txt"):
        (copy / "voices" / name).touch()
    status, out, err = run(capsys, "remove", "man", "--model", copy)
    assert status == 0
    assert "removed" in out
    assert "makes the voice again" in err
