"""Whether cores are shared: what the kernel's files say, and what doctor makes of it."""

import pytest

from voicegate.engine.cores import CoreTimes
from voicegate.gateway.cli.checks import machine
from voicegate.gateway.cli.checks.finding import Level
from voicegate.gateway.cli.checks.machine import shared_cores


def test_neighbours_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_LOOK_S", 0.0)
    monkeypatch.setattr(machine, "usable_cores", lambda: (0, 1))
    times = iter([CoreTimes(3.0, 50.0, 7.0), CoreTimes(5.0, 54.0, 7.4), None, None])
    monkeypatch.setattr(machine, "read_core_times", lambda: next(times))
    assert "others keep 90 % of 2 cores" in str(shared_cores())
    assert shared_cores() is None, "nobody counts them"
    times = iter([CoreTimes(3.0, 50.0, 7.0), CoreTimes(5.0, 52.0, 9.0)])
    assert shared_cores() is None, "all of it ours"


@pytest.mark.parametrize(("found", "level"), [(None, Level.OK), ("others keep 90 % busy", Level.WARN)])
def test_doctor_says_so(monkeypatch: pytest.MonkeyPatch, found: str | None, level: Level) -> None:
    monkeypatch.setattr(machine, "shared_cores", lambda: found)
    finding = machine.check_cores()
    assert (finding.level, finding.subject) == (level, "cores")
    assert (found or "its own") in finding.text
