"""The environment of a measurement: machine, versions, commit, command. Goes into every result file. No torch."""

import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import voicegate

# Set where the code travels without its .git. Not VOICEGATE_: the server takes every such variable for a setting.
COMMIT_VARIABLE = "BENCH_COMMIT"
_SECRET_FLAGS = ("--api-key", "--header")
_SECRET_VALUE = re.compile(rf"^({'|'.join(_SECRET_FLAGS)})=.*", re.DOTALL)
_HIDDEN = "..."
_SOURCES = Path(voicegate.__file__).parents[1]


def describe() -> dict[str, Any]:
    """Plain data for JSON. None: not known here, or there is none."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "voicegate": voicegate.__version__,
        **_commit(),
        "command": _command(),
        "cpu": _cpu_model(),
        "num_cores": os.cpu_count(),
        "gpu": _gpu("name"),
        "gpu_driver": _gpu("driver_version"),
        "gpu_power_limit_w": _gpu("power.limit"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }


def _commit() -> dict[str, Any]:
    """The variable wins: whoever sets it knows what was sent. Then nothing says whether files differ from it."""
    told = os.environ.get(COMMIT_VARIABLE)
    if told:
        return {"commit": told[:12], "is_dirty": None}
    # An installed package may lie inside somebody else's repository.
    commit = _output("git", "rev-parse", "--short=12", "HEAD") if (_SOURCES / ".git").exists() else None
    if not commit:
        return {"commit": None, "is_dirty": None}
    # Files that runs write change no run, and one after another may write them.
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)bench/results")
    return {"commit": commit, "is_dirty": bool(changed)}


def _command() -> str:
    """As it was typed, without the directory of the interpreter and without keys."""
    if not sys.orig_argv:
        return ""
    words = [Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]]
    shown = [_HIDDEN if before in _SECRET_FLAGS else word for before, word in zip(["", *words], words, strict=False)]
    return shlex.join(_SECRET_VALUE.sub(rf"\1={_HIDDEN}", word) for word in shown)


def _gpu(query: str) -> str | None:
    answer = _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    return answer.splitlines()[0].strip() if answer else None


def _output(*command: str) -> str | None:
    try:
        completed = subprocess.run(command, cwd=_SOURCES, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return completed.stdout.strip() if completed.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
