"""The distributions, built once from a copy of this tree, and the environments that they are installed in."""

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment, make_environment, plain_environment

LIGHT = ("msgspec", "orjson", "websockets")
# Leftovers of a build would find their way into the next one; tests and documents are in none.
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests", "docs")


@dataclass(frozen=True, slots=True)
class Distributions:
    wheel: Path  # built from the source distribution
    wheel_of_tree: Path
    tiny_model: Path


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a clone of the repository is: links and all, nothing built, nothing installed."""
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("clone") / "voicegate", symlinks=True, ignore=_LEFT_OUT)


@pytest.fixture(scope="session")
def distributions(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    folder = tmp_path_factory.mktemp("dist")
    return Distributions(
        wheel=_build(tree, folder),
        wheel_of_tree=_build(tree, folder / "of-tree", "--wheel"),
        tiny_model=_build(tree / "models", folder),
    )


@pytest.fixture(scope="session")
def client(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install voicegate-tts`, with what it really depends on."""
    environment = make_environment(tmp_path_factory.mktemp("client"))
    environment.install("-c", ROOT / "constraints.txt", distributions.wheel)
    return environment


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Dependencies of the client, without voicegate."""
    environment = make_environment(tmp_path_factory.mktemp("dependencies"))
    environment.install("-c", ROOT / "constraints.txt", *LIGHT)
    return environment


@pytest.fixture(scope="session")
def server(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with its extra `server`, but for what others wrote, which is borrowed: torch alone is minutes."""
    environment = make_environment(tmp_path_factory.mktemp("server"))
    environment.install("--no-deps", distributions.wheel, distributions.tiny_model)
    (environment.packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return environment


def _build(source: Path, folder: Path, *options: str) -> Path:
    """The wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *options, str(source)]
    built = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
    assert built.returncode == 0, built.stdout + built.stderr
    name = "voicegate_tiny_model" if source.name == "models" else "voicegate_tts"
    (wheel,) = folder.glob(f"{name}-*.whl")
    return wheel
