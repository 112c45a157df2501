"""Additions are found by name; without their folders the core runs, and what names one is told which is missing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine import additions
from voicegate.engine.model.model_json import load_model_config

ROOT = Path(__file__).resolve().parents[3]
# Parts of a start, and of its decisions: a second of tests that know of no addition.
_TELLING = (
    "tests/unit/engine/load/test_memory.py",
    "tests/unit/engine/load/test_voice_places.py",
    "tests/unit/engine/model",
    "tests/unit/engine/test_config.py",
    "tests/unit/engine/core/test_policy.py",
    "tests/unit/engine/checkpoint/test_shapes.py",
)
_ASKED_FOR = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from voicegate.gateway.cli.main import run

told = {}
for words in json.load(sys.stdin):
    with redirect_stdout(StringIO()) as out, redirect_stderr(out):
        status = run(words)
    told[" ".join(words)] = [status, out.getvalue()]
print(json.dumps(told))
"""


def test_what_is_registered_is_there_and_has_what_its_kind_has() -> None:
    for each in additions.ADDITIONS:
        assert additions.is_installed(each.name)
        assert (ROOT / "engine" / each.folder / "__init__.py").is_file()
    for family in additions.names("family"):
        assert callable(additions.load(family, "config").token2wav)
        assert callable(additions.load(family, "checkpoint.reading").read_checkpoint)


@pytest.fixture(scope="module")
def core_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree without families and backends. What is compiled comes along: three processes import most of it."""
    place = tmp_path_factory.mktemp("core")
    for name in ("bench", "engine", "gateway", "protocol", "tests", "voicegate"):
        ignore = shutil.ignore_patterns("*.pyc.*", "families", "backends", "results", "node_modules")
        shutil.copytree(ROOT / name, place / name, symlinks=True, ignore=ignore)
    for name in ("clients", "docs", "models"):
        (place / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def ran(place: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(place)}
    environment["VOICEGATE_PORT"] = "9"  # discard: no gateway is there
    return subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_cores_tests_pass_without_them(core_alone: Path) -> None:
    done = ran(core_alone, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *_TELLING)
    assert done.returncode == 0, done.stdout[-3000:]
    where = ran(core_alone, "-c", "import voicegate.engine as engine; print(engine.__path__[0])").stdout
    assert where.startswith(str(core_alone)), "these were the copy's"


def test_the_tiny_model_speaks_without_them(core_alone: Path, tmp_path: Path) -> None:
    sound = tmp_path / "said.wav"
    done = ran(core_alone, "-m", "voicegate", "say", "--output", str(sound), "Good morning.")
    assert done.returncode == 0, done.stderr
    assert "starting one in this process" in done.stderr
    assert sound.stat().st_size > 20_000


def test_what_names_one_is_told_which_folder_is_missing(core_alone: Path, tmp_path: Path) -> None:
    second = shutil.copytree(TINY_MODEL_DIR, tmp_path / "second")
    raw = json.loads((second / "model.json").read_text())
    (second / "model.json").write_text(json.dumps({**raw, "model_type": "cosyvoice2-stepaudio2"}))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "flow.yaml").write_text("")
    tensorrt = "tensorrt is not part of this installation: engine/backends/tensorrt is missing"
    family = "cosyvoice2-stepaudio2 is not part of this installation: engine/families/stepaudio2 is missing"
    tensorrt_llm = "tensorrt-llm is not part of this installation: engine/backends/tensorrt_llm is missing"
    apart = "disaggregated is not part of this installation: engine/backends/disaggregated is missing"
    asked = {
        ("doctor", "--device", "cpu"): (0, "model"),
        ("doctor", "--device", "cpu", "--flow-backend", "tensorrt"): (1, tensorrt),
        ("doctor", "--device", "cpu", "--llm-backend", "tensorrt-llm", "--merged-hf-dir", "x"): (1, tensorrt_llm),
        ("doctor", "--llm-device", "cpu", "--token2wav-devices", "cpu"): (1, apart),
        ("doctor", "--device", "cpu", "--model-dir", str(second)): (1, family),
        ("size", "--vocoder-backend", "tensorrt"): (1, tensorrt),
        ("build", "--model-dir", str(TINY_MODEL_DIR)): (1, tensorrt),
        ("convert", str(tmp_path / "source"), str(tmp_path / "made")): (1, family),
        ("serve", "--device", "cpu", "--port", "0", "--model-dir", str(second)): (1, family),
        ("serve", "--device", "cpu", "--port", "0", "--llm-backend", "tensorrt-llm"): (1, tensorrt_llm),
        ("serve", "--port", "0", "--llm-device", "cpu", "--token2wav-devices", "cpu"): (1, apart),
    }
    done = ran(core_alone, "-c", _ASKED_FOR, given=json.dumps([list(words) for words in asked]))
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for words, (status, message) in asked.items():
        got, text = told[" ".join(words)]
        assert (message in text, got == 0) == (True, status == 0), f"{words}: {got}, {text}"


def test_a_model_that_names_an_unknown_family_is_told_the_known_ones(tmp_path: Path) -> None:
    model = shutil.copytree(TINY_MODEL_DIR, tmp_path / "model")
    raw = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps({**raw, "model_type": "other"}))
    with pytest.raises(ValueError, match="model_type is 'other'; this engine runs 'cosyvoice3' and 'cosyvoice2-"):
        load_model_config(model)
