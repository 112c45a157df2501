"""Virtual environments that hold what a stranger would install, and nothing of this tree."""

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OURS = ("VOICEGATE_", "PYTHON")  # settings of whoever runs the tests


@dataclass(frozen=True, slots=True)
class Environment:
    folder: Path
    elsewhere: Path  # where commands run: an empty folder, so that nothing is found by accident

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python3.*/site-packages")
        return found

    def install(self, *arguments: object) -> None:
        """By this interpreter's pip, so that the environment needs none of its own."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "install", "-q"]
        pip.append("--no-compile")  # what is imported is compiled then
        subprocess.run([*map(str, pip), *map(str, arguments)], check=True, env=plain_environment())

    def run(self, *arguments: object, cwd: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        """`voicegate ...` or `python ...` of this environment."""
        name, *rest = map(str, arguments)
        return subprocess.run(
            [str(self.folder / "bin" / name), *rest],
            capture_output=True,
            text=True,
            cwd=cwd or self.elsewhere,
            env=plain_environment(variables),
        )


def make_environment(folder: Path) -> Environment:
    venv.create(folder / "env", with_pip=False, symlinks=True)
    (folder / "elsewhere").mkdir()
    return Environment(folder / "env", folder / "elsewhere")


def plain_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OURS)} | dict(more or {})
