"""What `make` has pip install, by the torch that it would take here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dockerfile import ROOT
from tests.unit.deploy.test_container import pins, without_nvidias

pytestmark = pytest.mark.unit

# In place of the environment's Python: says what torch it would take, and keeps what it is asked for otherwise.
PYTHON = """#!/bin/sh
case "$*" in
*--dry-run*) echo "$TORCH" ;;
*) echo "$@" > "$KEPT/asked" && cp "$6" "$KEPT/constraints" ;;
esac
"""


@pytest.fixture(params=["Would install torch-2.13.0+cpu", "Would install torch-2.13.0", "no network"])
def torch(request: pytest.FixtureRequest) -> str:
    told: str = request.param
    return told


def test_a_torch_for_cuda_has_the_triton_that_goes_with_it(torch: str, tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    told = {**os.environ, "TORCH": torch, "KEPT": str(tmp_path)}
    subprocess.run(["sh", "deploy/setup_packages.sh", tmp_path / "venv"], cwd=ROOT, env=told, check=True)
    assert "-e models -e .[server,dev]" in (tmp_path / "asked").read_text()
    wanted = pins(ROOT / "constraints.txt")
    if torch == "Would install torch-2.13.0" and sys.platform == "linux":
        wanted = without_nvidias(wanted) | pins(ROOT / "deploy/gpu-versions.txt")
    assert pins(tmp_path / "constraints") == wanted
