"""The command: graphs are written for any machine, and without a GPU or the package it says so."""

from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime
import pytest

from voicegate.bench.tensorrt import __main__ as command
from voicegate.bench.tensorrt.__main__ import main
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FLOW_SHAPES", (FlowShape(1, 50, 50),))
    monkeypatch.setattr(command, "VOCODER", replace(command.VOCODER, batch_buckets=(1,), frame_buckets=(4,)))


def test_files_are_what_onnxruntime_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # a second time over the first
        assert main(["export", "--out", str(tmp_path), "--precision", "float32"]) == 0
    names = {"flow_step_1x50_behind_50.float32.onnx", "vocoder_1x4.float32.onnx"}
    assert {Path(line).name for line in capsys.readouterr().out.splitlines()} == names
    assert {path.name for path in tmp_path.iterdir()} == names | {f"{name}.data" for name in names}
    for name in names:
        onnx.checker.check_model(tmp_path / name)
        session = onnxruntime.InferenceSession(tmp_path / name, providers=["CPUExecutionProvider"])
        assert session.get_outputs()


def test_what_it_cannot_do_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure"]) == 1
    assert main(["export", "--model", str(tmp_path / "nothing"), "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line[:16] for line in told] == ["bench.tensorrt: "] * 2
