"""What the kernel counts of cores, in text and for real."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.polling import until
from voicegate.engine.device.core_times import CoreTimes, core_times, num_usable_cores, read_core_times

pytestmark = pytest.mark.unit

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
    assert num_usable_cores() == len(os.sched_getaffinity(0))
