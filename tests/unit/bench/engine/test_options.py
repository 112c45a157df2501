"""The command line of bench.engine: settings and scenarios."""

from pathlib import Path

import pytest

from voicegate.bench.engine import __main__ as engine
from voicegate.bench.engine.__main__ import UsageError, engine_config, main, parse_setting, parser


@pytest.mark.parametrize(
    ("setting", "parsed"),
    [
        ("max_active_clauses=400", ("max_active_clauses", 400)),
        ("kv_dtype=float8", ("kv_dtype", "float8")),
        ("threads=none", ("threads", None)),
        ("is_eager=true", ("is_eager", True)),
        ("voices_dir=here", ("voices_dir", Path("here"))),
    ],
)
def test_a_setting_has_its_fields_type(setting: str, parsed: tuple[str, object]) -> None:
    assert parse_setting(setting) == parsed


@pytest.mark.parametrize("setting", ["max_active_clauses", "nonsense=1", "max_active_clauses=many", "model_dir=x"])
def test_a_wrong_setting_is_refused_by_name(setting: str) -> None:
    with pytest.raises(UsageError, match=setting):
        parse_setting(setting)


def test_a_setting_that_is_none_of_the_choices_is_refused() -> None:
    options = parser().parse_args(["--scenarios", "live:2", "--device", "cpu", "--set", "kv_dtype=int4"])
    with pytest.raises(UsageError, match="kv_dtype is 'int4'; it must be one of auto, bfloat16, float32, float8"):
        engine_config(options)


def test_the_engine_gets_room_for_the_largest_scenario() -> None:
    asked = ["--scenarios", "alone:20", "closed:400", "live:16", "--device", "cpu"]
    config = engine_config(parser().parse_args([*asked, "--set", "max_active_clauses=3"]))
    assert config.max_utterances == config.max_waiting_utterances == 2 * 400 + 32
    assert config.max_active_clauses == 3
    assert engine_config(parser().parse_args([*asked, "--set", "max_utterances=5"])).max_utterances == 5


def test_a_wrong_command_is_one_line_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "configure_logs", lambda *_: None)  # logging is the whole process's
    assert main(["--device", "cpu", "--set", "nonsense=1"]) == 1
    assert capsys.readouterr().err.startswith("bench.engine: --set nonsense=1")
    with pytest.raises(SystemExit):
        main(["--scenarios", "dance"])
    assert "'dance' is no scenario; there are alone:WRITER" in capsys.readouterr().err
