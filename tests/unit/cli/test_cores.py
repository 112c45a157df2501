"""Whether cores are shared: what the kernel's files say, and what doctor makes of it."""

from pathlib import Path

import pytest

from voicegate.engine.device.core_times import CoreTimes
from voicegate.gateway.cli.checks import cores, machine
from voicegate.gateway.cli.checks.cores import quota_cores, shared_cores
from voicegate.gateway.cli.checks.finding import Level

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("cpu_max", "num"), [("max 100000\n", None), ("150000 100000\n", 1.5)])
def test_a_control_groups_quota(cpu_max: str, num: float | None) -> None:
    assert quota_cores(cpu_max) == num


def test_neighbours_are_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(cores, "_LOOK_S", 0.0)
    monkeypatch.setattr(cores, "num_usable_cores", lambda: 2)
    times = iter([CoreTimes(3.0, 50.0, 7.0), CoreTimes(5.0, 54.0, 7.4), None, None])
    monkeypatch.setattr(cores, "read_core_times", lambda: next(times))
    assert "others keep 90 % of 2 cores" in str(shared_cores())
    assert shared_cores() is None, "nobody counts them"
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert shared_cores() == "this process may use 1.5 of 2 cores: set threads to 1"
    (tmp_path / "cpu.max").write_text("max 100000\n")
    times = iter([CoreTimes(3.0, 50.0, 7.0), CoreTimes(5.0, 52.0, 9.0)])
    assert shared_cores() is None, "all of it ours"


@pytest.mark.parametrize(("found", "level"), [(None, Level.OK), ("others keep 90 % busy", Level.WARN)])
def test_doctor_says_so(monkeypatch: pytest.MonkeyPatch, found: str | None, level: Level) -> None:
    monkeypatch.setattr(machine, "shared_cores", lambda: found)
    finding = machine.check_cores()
    assert (finding.level, finding.subject) == (level, "cores")
    assert (found or "its own") in finding.text
