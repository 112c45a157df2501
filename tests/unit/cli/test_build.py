"""`voicegate build`: what it says. The building has tests of its own."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.backends.tensorrt import build as tensorrt_build
from voicegate.engine.backends.tensorrt.build import Built
from voicegate.engine.config import EngineConfig
from voicegate.gateway.cli.main import EXIT_FAILED, run


def test_it_builds_what_serve_would_want(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: list[tuple[EngineConfig, bool]] = []

    def build(config: EngineConfig, progress: Any, *, is_forced: bool) -> Built:
        seen.append((config, is_forced))
        progress.line("vocoder_1x8: 9.1 s")
        return Built(tmp_path, num_built=2, num_kept=22, num_bytes=88 << 20)

    monkeypatch.setattr(tensorrt_build, "build_engines", build)
    monkeypatch.setenv("VOICEGATE_MODEL_DIR", str(TINY_MODEL_DIR))
    arguments = [
        "build",
        "--tensorrt-dir",
        str(tmp_path),
        "--vocoder-precision",
        "bfloat16",
        "--precision",
        "float32",
        "--force",
    ]
    assert run(arguments) == 0
    ((config, is_forced),) = seen
    assert (config.model_dir, config.tensorrt_dir, is_forced) == (TINY_MODEL_DIR, tmp_path, True)
    assert (config.vocoder_precision, config.precision) == ("bfloat16", "float32")
    shown = capsys.readouterr()
    assert shown.err == "vocoder_1x8: 9.1 s\n"
    assert shown.out.startswith(f"{tmp_path}: 2 engines built (88 MiB), 22 kept; voicegate serve --model-dir ")


def test_without_a_gpu_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    directory = tmp_path / "engines"
    assert run(["build", "--model-dir", str(TINY_MODEL_DIR), "--tensorrt-dir", str(directory)]) == EXIT_FAILED
    assert capsys.readouterr().err == (
        "voicegate: engines are built for the GPU that they run on, and torch sees none here\n"
    )
    assert not directory.exists()


@pytest.mark.parametrize(
    ("flag", "known"),
    [("--vocoder-precision", "float16, bfloat16, tf32, float32"), ("--precision", "bfloat16, float32")],
)
@pytest.mark.parametrize("precision", ["int8", ""])
def test_a_precision_that_is_none(capsys: pytest.CaptureFixture[str], flag: str, known: str, precision: str) -> None:
    assert run(["build", flag, precision]) == EXIT_FAILED
    assert f"must be one of {known}" in capsys.readouterr().err
