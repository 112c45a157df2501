"""The plugins for agents' frameworks as their users get them: installed from what their folders build."""

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


@functools.cache
def installed_plugin(framework: str) -> Path:
    """Where `import` finds it. Built beside a copy of its folder, in which setuptools leaves files."""
    place = Path(tempfile.mkdtemp(prefix=f"voicegate-{framework}-"))
    shutil.copytree(ROOT / "clients" / framework, place / "source")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--no-compile")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", place / "installed", place / "source"]
    subprocess.run(command, check=True)
    shutil.rmtree(place / "source")
    return place / "installed"
