"""Benches measure what is shipped: threads that wait as the engine's do."""

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import os, sys, voicegate.bench
print(os.environ["OMP_WAIT_POLICY"], os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("chosen", "told_of"),
    [
        ({}, ["PASSIVE", "10000"]),
        ({"GOMP_SPINCOUNT": "0"}, ["PASSIVE", "0"]),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", "None"]),
    ],
)
def test_threads_look_and_then_sleep_before_a_bench_can_load_torch(chosen: dict[str, str], told_of: list[str]) -> None:
    ours = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    environment = {name: value for name, value in os.environ.items() if name not in ours} | chosen
    told = subprocess.run([sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [*told_of, "False"]
