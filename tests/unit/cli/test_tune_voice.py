"""`voicegate tune-voice` with the tiny model: what it prints, what it writes and where, and refusals in one line."""

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.interface import EngineError
from voicegate.engine.load.speaking_pace import Heard
from voicegate.engine.voices.pace import Said, VoicePace, pace_in
from voicegate.engine.voices.voice import load_voice, save_voice
from voicegate.gateway.cli import main, tune_voice
from voicegate.gateway.cli.model_files import read_header
from voicegate.gateway.cli.terminal import CommandError

Captured = pytest.CaptureFixture[str]
FILES = ("model.json", "llm.safetensors", "tokenizer.json", "tokenizer_config.json")
WORDS = ("Yes, that works for me.", "One moment.", "I see.", "Thank you.", "No, not today.")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies the parts of the tiny model that the LLM speaks with; no voice was tuned."""
    monkeypatch.setattr("voicegate.gateway.logs.configure_logs", lambda *_: None)  # logging is the whole process's
    monkeypatch.setenv("VOICEGATE_THREADS", "1")  # so are torch's threads
    directory = tmp_path / "model"
    (directory / "voices").mkdir(parents=True)
    for name in FILES:
        (directory / name).symlink_to(TINY_MODEL_DIR / name)
    for name in ("woman", "man"):
        voice = load_voice(TINY_MODEL_DIR / "voices" / f"{name}.safetensors", vocab_size=6561, speaker_dim=192)
        save_voice(replace(voice, pace=None), directory / "voices" / f"{name}.safetensors")
    return directory


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts"
    path.write_text("\n\n".join(WORDS))
    return path


def run(capsys: Captured, *arguments: object) -> tuple[int, str, str]:
    status = main.run(["tune-voice", "--device", "cpu", *map(str, arguments)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_a_voice_is_measured_and_written_where_the_engine_reads_it(capsys: Captured, copy: Path, texts: Path) -> None:
    path = copy / "voices" / "man.safetensors"
    status, out, _ = run(capsys, "man", "--model", copy, "--texts", texts, "--seeds", 4, "--write")
    assert status == 0
    assert "of 20 sentences nine in ten take " in out
    assert f"wrote {path}" in out
    pace = pace_in(read_header(path).texts)
    assert pace is not None
    assert 1.5 < pace.tokens_per_letter < 3.5, "its recording has 1.8, and short sentences take longer"
    assert out.startswith(f"man: {pace.tokens_per_letter:.3f} speech tokens a letter, ")
    assert main.run(["voices", "show", "man", "--model", str(copy)]) == 0
    assert f"{pace.tokens_per_letter:.2f} speech tokens a letter, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("end", "status", "said"), [(KeyboardInterrupt(), 130, ""), (EngineError("no memory"), 1, "voicegate: no memory\n")]
)
def test_an_end_in_the_middle_leaves_no_bar_on_the_terminal(
    end: BaseException, status: int, said: str, capsys: Captured, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object, on_said: Callable[[int, int], None], **__: object) -> Heard:
        on_said(3, 10)
        raise end

    monkeypatch.setattr("voicegate.engine.load.speaking_pace.measure_pace", measure)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    found, _, shown = run(capsys, "man", "--model", copy)
    assert found == status
    assert " 30%" in shown
    assert shown.endswith(f"\r\x1b[K{said}")


@pytest.fixture
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of a voice that always speaks alike, one of which did not end."""
    heard = Heard([Said(20, 38)] * 30, num_cut_off=1)
    monkeypatch.setattr("voicegate.engine.load.speaking_pace.measure_pace", lambda *_, **__: heard)


@pytest.mark.usefixtures("_steady")
def test_nothing_is_written_unless_asked_for(capsys: Captured, copy: Path) -> None:
    path = copy / "voices" / "man.safetensors"
    before = path.read_bytes()
    status, out, err = run(capsys, "man", "--model", copy)
    assert (status, path.read_bytes()) == (0, before)
    assert out == (
        "man: 1.900 speech tokens a letter, 76 ms\n"
        "of 30 sentences nine in ten take 1.00 to 1.00 of that, the fastest 1.00, the slowest 1.00\n"
        "share of it that may be said of a sentence while it is written: 1.00\n"
    )
    assert "1 sentences did not end by themselves, and are left out" in err
    assert f"with --write it is kept in {path}" in err


@pytest.mark.usefixtures("_steady")
def test_a_users_voice_goes_before_the_models(capsys: Captured, copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy / "voices", tmp_path / "mine")
    (tmp_path / "mine" / "man.safetensors").unlink()
    arguments = ("--model", copy, "--voices-dir", tmp_path / "mine")
    assert f"wrote {tmp_path / 'mine' / 'woman.safetensors'}" in run(capsys, *arguments, "--write")[1], (
        "the default voice"
    )
    assert pace_in(read_header(copy / "voices" / "woman.safetensors").texts) is None
    assert "its file has 1.900 tokens a letter, share 1.00" in run(capsys, *arguments)[1]


@pytest.mark.usefixtures("_steady")
def test_a_model_that_names_no_default_voice_has_the_servers(capsys: Captured, copy: Path, tmp_path: Path) -> None:
    raw = json.loads((copy / "model.json").read_text())
    del raw["default_voice"]
    (copy / "model.json").unlink()  # a link to the model's own
    (copy / "model.json").write_text(json.dumps(raw))
    (tmp_path / "mine").mkdir()
    shutil.copy(copy / "voices" / "man.safetensors", tmp_path / "mine" / "anna.safetensors")
    assert run(capsys, "--model", copy, "--voices-dir", tmp_path / "mine")[1].startswith("man: ")


def test_a_voice_that_is_removed_meanwhile_is_told(copy: Path) -> None:
    with pytest.raises(CommandError, match=r"^the pace is not kept: .*gone\.safetensors is missing"):
        tune_voice._write(copy / "voices" / "gone.safetensors", VoicePace(2.0, 0.8))


def test_sentences_are_of_the_voices_language_unless_another_is_named(copy: Path) -> None:
    header = read_header(copy / "voices" / "woman.safetensors")
    options = argparse.Namespace(texts=None, language=None)
    assert "Good morning, how can I help you?" in tune_voice._texts(options, header, "en")
    options.language = "zh"
    assert "您能再说一遍吗？" in tune_voice._texts(options, header, "en")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nobody"], "there is no file of a voice 'nobody' in "),
        (["woman", "--texts", "/nowhere.txt"], "/nowhere.txt cannot be read: No such file"),
        (["woman", "--texts", "/dev/null"], "/dev/null has 0 sentences; 1 to 1000 are taken"),
        (["woman", "--seeds", "0"], "32 sentences, said 0 times each, tell no pace: 20 are needed in all"),
        (["woman", "--seeds", "1", "--texts", "few"], "1 sentences, said 1 times each, tell no pace"),
        (["woman", "--seeds", "20", "--texts", "nothing"], "there is nothing to say in '...'"),
        (["woman", "--seeds", "20", "--texts", "long"], "no sentence is that long (500 letters, 272 fit): 'word word"),
    ],
)
def test_refusals_are_one_line_and_change_nothing(
    capsys: Captured, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    for name, content in (("few", "Hello."), ("nothing", "..."), ("long", "word " * 125)):
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    path = copy / "voices" / "woman.safetensors"
    before = path.read_bytes()
    status, out, err = run(capsys, *arguments, "--model", copy, "--write")
    assert (status, out, err.count("\n")) == (main.EXIT_FAILED, "", 1)
    assert reason in err
    assert path.read_bytes() == before


def test_a_model_without_voices_is_told(capsys: Captured, copy: Path) -> None:
    shutil.rmtree(copy / "voices")
    assert f"{copy / 'voices'} holds no voice (*.safetensors)" in run(capsys, "--model", copy)[2]


def test_a_voice_in_a_language_without_sentences_needs_texts(capsys: Captured, copy: Path) -> None:
    path = copy / "model.json"
    content = path.read_text().replace('"en"', '"fr"')
    path.unlink()
    path.write_text(content)
    assert "there are no sentences in 'fr' here: --texts takes a file of yours" in run(capsys, "--model", copy)[2]
