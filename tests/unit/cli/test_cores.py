"""Whether cores are shared: what the kernel's files say, and what doctor makes of it."""

import pytest

from voicegate.gateway.cli.checks import cores, machine
from voicegate.gateway.cli.checks.cores import CpuTimes, quota_cores, shared_cores
from voicegate.gateway.cli.checks.finding import Level

pytestmark = pytest.mark.unit

STAT = "cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4\n"


def test_the_share_of_the_cores_that_computed() -> None:
    before = CpuTimes.of(STAT.format(busy=100, idle=900))
    after = CpuTimes.of(STAT.format(busy=175, idle=925))
    assert after.busy_since(before) == pytest.approx(0.75)
    assert after.busy_since(after) == 0.0


@pytest.mark.parametrize(("cpu_max", "num"), [("max 100000\n", None), ("150000 100000\n", 1.5)])
def test_a_control_groups_quota(cpu_max: str, num: float | None) -> None:
    assert quota_cores(cpu_max) == num


def test_neighbours_are_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("proc")
    monkeypatch.setattr(cores, "_QUOTA", directory / "cpu.max")
    monkeypatch.setattr(cores, "_STAT", directory / "stat")
    assert shared_cores() is None
    ticks = iter([(100, 900), (190, 910)])

    class Stat:
        def exists(self) -> bool:
            return True

        def read_text(self) -> str:
            busy, idle = next(ticks)
            return STAT.format(busy=busy, idle=idle)

    monkeypatch.setattr(cores, "_STAT", Stat())
    monkeypatch.setattr(cores, "_LOOK_S", 0.0)
    assert "others keep 90 %" in str(shared_cores())


@pytest.mark.parametrize(("found", "level"), [(None, Level.OK), ("others keep 90 % busy", Level.WARN)])
def test_doctor_says_so(monkeypatch: pytest.MonkeyPatch, found: str | None, level: Level) -> None:
    monkeypatch.setattr(machine, "shared_cores", lambda: found)
    finding = machine.check_cores()
    assert (finding.level, finding.subject) == (level, "cores")
    assert (found or "its own") in finding.text
