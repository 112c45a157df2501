"""Benches measure what is shipped: threads that wait as the engine's do."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

_SCRIPT = "import os, sys, voicegate.bench; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"


def test_threads_sleep_before_a_bench_can_load_torch() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    told = subprocess.run([sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["PASSIVE", "False"]
