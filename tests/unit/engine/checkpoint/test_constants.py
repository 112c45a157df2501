"""Upstream's noise tables are drawn to the bit, or it is said that they are not."""

from pathlib import Path

import pytest
import torch

from tests.support.upstream_source import RecordedProgress
from voicegate.engine.checkpoint import constants
from voicegate.engine.model.weights import load_state_dict


def write(path: Path) -> RecordedProgress:
    progress = RecordedProgress()
    constants.write_flow_noise(path, lambda _: None, progress)
    return progress


def test_both_tables_are_upstreams(tmp_path: Path) -> None:
    """On a CPU with AVX2 or AVX-512, as the README of the golden data says."""
    progress = write(tmp_path / "noise.safetensors")
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert progress.remarks == []
    noise = load_state_dict(tmp_path / "noise.safetensors")["noise"]
    assert noise.shape == (80, 15_000)
    torch.testing.assert_close(
        noise[0, :4], torch.tensor([-1.1258398, -1.1523602, -0.2505786, -0.4338788]), atol=3e-6, rtol=0
    )
    assert constants.flow_noise_bytes() == (tmp_path / "noise.safetensors").stat().st_size


def test_other_tables_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "MAX_ROWS", 100)
    monkeypatch.setattr(constants, "FLOW_NOISE_SHA256", "another")
    noise, excitation = write(tmp_path / "noise.safetensors").remarks
    assert "up to 2.3e-6 in 38 % of the numbers" in noise
    assert "another excitation table than upstream's" in excitation
    assert (tmp_path / "noise.safetensors").exists()
