"""Gateway, engine process, and vLLM's own process below it: whichever is killed, nothing of the tree is left.

The lowest one is a stand-in which is started as vLLM starts its own, and imports from us what vLLM imports.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_engine_processes import FRONT, speak
from tests.support.own_session import running
from tests.support.patience import PATIENCE_S
from tests.support.polling import until

_MODULE = "tests.support.spawning_engine_process"


@pytest.fixture
def front() -> Iterator["subprocess.Popen[str]"]:
    """The gateway's part, in a session of its own: it speaks each line of its input."""
    program = FRONT.replace('site("only")', f'site("only", "{_MODULE}")')
    with running(program) as process:
        yield process


def next_core(front: "subprocess.Popen[str]") -> int:
    """Process id of the next one at the bottom, as it is told."""
    assert front.stderr is not None
    return next(int(line) for line in front.stderr if line.strip().isdigit())


def engine_pid(front: "subprocess.Popen[str]") -> int:
    assert front.stdout is not None
    return int(front.stdout.readline())


def is_gone(pid: int) -> bool:
    """Ended, whether or not whoever adopted it has noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for_all(front: "subprocess.Popen[str]") -> None:
    front.communicate(timeout=PATIENCE_S)  # until all who hold its standard error have ended


def test_killed_gateway(front: "subprocess.Popen[str]") -> None:
    core, engine = next_core(front), engine_pid(front)
    front.kill()
    wait_for_all(front)
    assert is_gone(engine)
    assert is_gone(core)


async def test_killed_engine_process(front: "subprocess.Popen[str]") -> None:
    core, engine = next_core(front), engine_pid(front)
    os.kill(engine, signal.SIGKILL)
    await until(lambda: is_gone(core), timeout_s=PATIENCE_S)
    another = next_core(front)
    assert not is_gone(another)
    front.kill()
    wait_for_all(front)
    assert is_gone(another)


def test_signals_to_the_whole_group_end_none_of_them(front: "subprocess.Popen[str]") -> None:
    core, engine = next_core(front), engine_pid(front)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.killpg(front.pid, number)
    assert speak(front, "Still here.") == "Done 0\n"
    assert not is_gone(core)
    wait_for_all(front)  # its input ends
    assert front.returncode == 0
    assert is_gone(engine)
    assert is_gone(core)
