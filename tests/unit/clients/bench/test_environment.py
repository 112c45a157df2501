"""A result file's words on its run: the command but for keys, and whether the code was that of the commit."""

import subprocess
import sys
from pathlib import Path

import pytest

from voicegate.clients.bench import environment
from voicegate.clients.bench.environment import COMMIT_VARIABLE, describe


def test_keys_are_not_in_results(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/x/python", "bench", "--api-key", "secret", "--api-key=secret", "--header", "xi-api-key: secret", "url"]
    monkeypatch.setattr(sys, "orig_argv", words)
    command = describe()["command"]
    assert command == "python bench --api-key ... --api-key=... --header ... url"


def test_results_that_a_run_has_written_are_no_other_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else all but the first of several in one run would be told to be of nobody knows what."""
    code, results = tmp_path / "code.py", tmp_path / "bench" / "results" / "soak.json"
    results.parent.mkdir(parents=True)
    for file in (code, results):
        file.write_text("as committed")
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for command in (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "--message", "all")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.delenv(COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(environment, "_SOURCES", tmp_path)
    results.write_text("measured")
    assert describe()["is_dirty"] is False
    code.write_text("changed")
    assert describe()["is_dirty"] is True
