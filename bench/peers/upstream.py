"""Upstream's own classes (FunAudioLLM/CosyVoice) from a checkout, behind upstream_server.py in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from voicegate.bench import servers

_SERVER: Final = Path(__file__).with_name("upstream_server.py")
_CODE: Final = Path("cosyvoice", "cli", "cosyvoice.py")
_OWN_EULER_STEPS: Final = 10  # a constant of its code
_VERSIONS: Final = ("transformers",)


@dataclass(frozen=True, slots=True)
class Variant:
    """`path`: its checkout, that of Matcha-TTS, and directories with packages that this environment lacks."""

    path: tuple[Path, ...]
    model: Path
    voice: str
    euler_steps: int
    is_growing: bool  # a text is given as a generator, as it is written; else whole, once it is

    def settings(self, name: str) -> dict[str, Any]:
        """For the result file. Raises ValueError where its code is not there."""
        if not any((each / _CODE).is_file() for each in self.path):
            told = ", ".join(map(str, self.path))
            raise ValueError(f"no {_CODE} in {told}: --upstream begins with a checkout of FunAudioLLM/CosyVoice")
        versions = {each.name.lower(): each.version for each in metadata.distributions(path=[*map(str, self.path)])}
        return {
            "versions": {"upstream": _commit(self.path[0]), **{name: versions.get(name) for name in _VERSIONS}},
            "text": "generator" if self.is_growing else "string",
            "euler_steps": self.euler_steps,
            "flattery": list(self._flattery(name)),
        }

    def _flattery(self, name: str) -> Iterator[tuple[str, str]]:
        yield "the peer", f"{name}: its first hop is set back before each text; by itself it grows with every text"
        if self.euler_steps != _OWN_EULER_STEPS:
            steps = f"{self.euler_steps} Euler steps, as the model asks for, where its code has {_OWN_EULER_STEPS}"
            yield "the peer", f"{name} takes {steps}"


@contextmanager
def serving(variant: Variant, log: Path) -> Iterator[tuple[str, int, float]]:
    """Its address, process id, and seconds until it was ready. Raises RuntimeError, OSError."""
    command = [sys.executable, str(_SERVER), str(variant.model), variant.voice]
    command += ["--euler-steps", str(variant.euler_steps), *(["--growing"] if variant.is_growing else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(each.resolve()) for each in variant.path)}
    began_s = time.monotonic()
    with servers.running(command, log, environment=environment) as process:
        port = servers.announced(process, "ready on ", log)
        yield f"http://127.0.0.1:{port}", process.pid, time.monotonic() - began_s


def _commit(checkout: Path) -> str | None:
    """None: it is no checkout, or git is not there."""
    try:
        asked = ("git", "-C", str(checkout), "rev-parse", "--short", "HEAD")
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
