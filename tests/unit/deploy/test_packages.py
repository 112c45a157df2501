"""deploy/packages.sh says so where one of the packages could not be published."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.deploy.test_setup import program

ROOT = Path(__file__).parents[3]
NPM_PACKAGES = ("clients/browser/player", "clients/javascript")


@pytest.mark.parametrize("bad", [None, *NPM_PACKAGES])
def test_an_npm_package_that_cannot_be_packed_fails_it(tmp_path: Path, bad: str | None) -> None:
    for folder in NPM_PACKAGES:
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "venv/bin/python", "#!/bin/sh\n")
    program(tmp_path / "programs/npm", f'#!/bin/sh\ncase $PWD in *"{bad}") exit 1 ;; esac\n')
    script = shutil.copy(ROOT / "deploy/packages.sh", tmp_path)
    told = {**os.environ, "PATH": f"{tmp_path}/programs:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", script, "venv"], cwd=tmp_path, env=told, stdout=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode == 0) is (bad is None)
    assert done.stdout.count("PASSED") == (NPM_PACKAGES.index(bad) if bad else len(NPM_PACKAGES))
