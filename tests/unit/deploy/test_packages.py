"""deploy/packages.sh says so where a package could not be published; the release adds what indexes ask for."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.programs import required
from tests.unit.deploy.test_setup import program

ROOT = Path(__file__).parents[3]
NPM_PACKAGES = ("clients/browser/player", "clients/javascript", "clients/livekit-node")


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


def test_npm_packages_name_the_repository_that_publishes_them(tmp_path: Path) -> None:
    """With trusted publishing npm compares it with the workflow's own, and refuses a package without (E422)."""
    for folder in NPM_PACKAGES:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "LICENSE", tmp_path)
    job = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["npm"]
    runs = [step for step in job["steps"] if "run" in step]
    told = {
        **os.environ,
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_REPOSITORY": "who/what",
        "GITHUB_WORKSPACE": str(tmp_path),
    }
    subprocess.run(["bash", "-e", "-c", runs[0]["run"]], cwd=tmp_path, env=told, check=True)
    assert [(step["run"], step["working-directory"]) for step in runs[1:]] == [
        ("npm publish --access public", folder) for folder in NPM_PACKAGES
    ]
    for folder in NPM_PACKAGES:
        url = "git+https://forge.example/who/what.git"
        repository = json.loads((tmp_path / folder / "package.json").read_text())["repository"]
        assert repository == {"type": "git", "directory": folder, "url": url}
        packed = subprocess.run(
            [required("npm"), "pack", "--dry-run", "--json"], cwd=tmp_path / folder, stdout=subprocess.PIPE, check=True
        )
        files = {each["path"] for each in json.loads(packed.stdout)[0]["files"]}
        assert {"LICENSE", "README.md", "package.json"} <= files
