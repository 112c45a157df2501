"""bench.engine.start: a start with its parts, what its settings are, and a process that cannot start."""

import json
from pathlib import Path

import pytest

from voicegate.bench.engine import start
from voicegate.bench.engine.__main__ import with_settings
from voicegate.bench.engine.start import STARTS, main, start_in_process
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError

pytestmark = pytest.mark.unit


def test_one_start_tells_when_it_is_ready_and_of_its_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "configure_logs", lambda *_: None)  # logging is the whole process's
    assert main(["--one", "--device", "cpu", "--set", "threads=1"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["ready_s"] > 0
    assert [line.partition(":")[0] for line in found["progress"]][1:5] == ["text", "speech LLM", "vocoder", "flow"]


def test_the_second_start_shares_the_cache_of_the_first_and_only_the_last_compiles_in_turn() -> None:
    assert [each.cache == STARTS[0].cache for each in STARTS] == [True, True, False]
    plain = EngineConfig(Path("model"))
    assert [with_settings(plain, each.settings) == plain for each in STARTS] == [True, True, False]


def test_what_is_done_without_adds_up() -> None:
    given = ["--set", "without=flow.fuse_norm", "--set", "threads=1", "--set", "without=start.compiles_side_by_side"]
    config = with_settings(EngineConfig(Path("model")), start.parser().parse_args(given).set)
    assert (config.without, config.threads) == (("flow.fuse_norm", "start.compiles_side_by_side"), 1)


def test_what_a_process_says_when_it_cannot_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cold: .*is not a voicegate model directory"):
        start_in_process(STARTS[0], ["--device", "cpu", "--model", str(tmp_path)], tmp_path)
