"""The README's commands for a GPU measure all that its table has, and have the time for it."""

import re

from voicegate.bench.environment import REPOSITORY
from voicegate.bench.socket import SCENARIOS
from voicegate.bench.table import results

SCRIPT = (REPOSITORY / "bench" / "gpu_all.sh").read_text()
SOCKET = re.search(r"part socket-\$card (\d+) .*?--budget-s (\d+) --num-alone (\d+)", SCRIPT)


def test_the_loads_of_the_table_come_first() -> None:
    run = results("socket-h200.json")
    assert run is not None
    assert list(SCENARIOS[: len(run["scenarios"])]) == list(run["scenarios"])
    assert SOCKET is not None
    limit_s, budget_s, num_alone = map(int, SOCKET.groups())
    assert run["scenarios"]["alone:whole"]["first_audio_ms"]["num"] == num_alone
    asked = re.search(r"--budget-s (\d+)", run["environment"]["command"])
    assert asked is not None
    assert int(asked[1]) <= budget_s < limit_s


def test_the_gpu_tests_have_the_time_that_they_took() -> None:
    limit = re.search(r"part gpu-tests (\d+) ", SCRIPT)
    assert limit is not None
    for name in ("gpu-tests-h200.txt", "gpu-tests-h100.txt"):
        took = re.search(r"passed.* in ([\d.]+)s", (REPOSITORY / "bench" / "results" / name).read_text())
        assert took is not None
        assert float(took[1]) < int(limit[1]), name
