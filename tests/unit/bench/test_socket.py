"""Records that bench.socket keeps of a run."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from tests.unit.clients.bench.test_judge import RECORD
from voicegate.bench import servers
from voicegate.bench.socket import ALONE_FLATTERY, Measured, flattery
from voicegate.clients.bench.judge import figures
from voicegate.clients.bench.scenario import parse
from voicegate.clients.bench.schedule import Settings


def test_a_result_says_what_it_takes_to_have_the_load_again(tmp_path: Path) -> None:
    path = tmp_path / "socket.json"
    options = argparse.Namespace(serve=[], json=path, html=None)
    measured = Measured(options, start_s=1.0)
    settings = Settings(voices=("anna", "bob"), mode="clause", duration_s=5.0, num_alone=40, seed=7)
    measured.begin(["anna", "bob"], settings, [parse("mixed:4")])
    measured.add(parse("mixed:4"), figures([RECORD], window_s=(5.0, 20.0)))
    saved = json.loads(path.read_text())
    conditions = {"mode": "clause", "voices": ["anna", "bob"], "seed": 7, "duration_s": 5.0, "num_alone": 40}
    assert conditions.items() <= saved.items()
    assert len(saved["texts_sha256"]) == 64
    assert saved["flattery"]


def test_a_server_that_does_not_come_up_in_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 600\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stuck))
    monkeypatch.setattr("voicegate.bench.servers._START_LIMIT_S", 0.2)
    with (
        pytest.raises(RuntimeError, match=r"not ready after 0\.2 s"),
        servers.voicegate(tmp_path, (), tmp_path / "log"),
    ):
        pass


def test_what_flatters_a_stream_alone_is_said_where_there_is_one() -> None:
    assert ALONE_FLATTERY in flattery(["anna"], [parse("mixed:4"), parse("alone:20")])
    assert ALONE_FLATTERY not in flattery(["anna"], [parse("mixed:4")])
