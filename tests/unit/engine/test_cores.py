"""The kernel's counts of cores, in text and for real."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.polling import until
from voicegate.engine import cores
from voicegate.engine.cores import CoreTimes, core_times, quota_cores, read_core_times, usable_cores

_STAT = """cpu  90 0 90 9999 0 0 0 0 0 0
cpu0 100 20 30 5000 900 4 5 6 50 7
cpu1 10 0 0 6000 0 0 0 0 0 0
cpu10 7000 0 0 0 0 0 0 0 0 0
intr 12345 0 9
"""


def test_busy_is_all_but_idle_and_waiting_for_disks_and_guests_count_once() -> None:
    times = core_times(_STAT, {0, 1}, ticks_per_s=100, at_s=3.0, own_s=0.5)
    assert times == CoreTimes(at_s=3.0, busy_s=(100 + 20 + 30 + 4 + 5 + 6 + 10) / 100, own_s=0.5)
    assert core_times(_STAT, {1, 7}, ticks_per_s=100, at_s=0.0, own_s=0.0).busy_s == 0.1, "core 7 is not there"
    assert core_times("", {0}, ticks_per_s=100, at_s=0.0, own_s=0.0).busy_s == 0.0


@pytest.mark.parametrize(("cpu_max", "num"), [("max 100000\n", None), ("150000 100000\n", 1.5)])
def test_a_control_groups_quota(cpu_max: str, num: float | None) -> None:
    assert quota_cores(cpu_max) == num


@pytest.mark.parametrize(
    ("cpu_max", "num"),
    [("max 100000\n", 4), ("350000 100000\n", 3), ("50000 100000\n", 1), ("900000 100000\n", 4), (None, 4)],
)
def test_no_more_cores_are_usable_than_a_quota_is_worth(
    cpu_max: str | None, num: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(cores, "usable_cores", lambda: range(4))
    if cpu_max is not None:
        (tmp_path / "cpu.max").write_text(cpu_max)
    assert cores.num_usable_cores() == num


@pytest.fixture
def neighbour() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    process.kill()
    process.wait()


@pytest.mark.usefixtures("neighbour")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/stat")
async def test_the_kernel_tells_of_a_real_neighbour() -> None:
    before = read_core_times()
    assert before is not None

    def others_s() -> float:
        now = read_core_times()
        assert now is not None
        return now.busy_s - before.busy_s - (now.own_s - before.own_s)

    await until(lambda: others_s() > 0.3)
    assert set(usable_cores()) == os.sched_getaffinity(0)
