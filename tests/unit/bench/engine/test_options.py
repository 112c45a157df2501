"""The command line of bench.engine: settings, ranges, names of scenarios."""

from pathlib import Path

import pytest

from voicegate.bench.engine import __main__ as engine
from voicegate.bench.engine.__main__ import (
    UsageError,
    engine_config,
    main,
    parse_range,
    parse_setting,
    parser,
    run_of,
    scenarios_of,
)
from voicegate.bench.engine.run import ScenarioName, parse_scenario
from voicegate.bench.plain.llm import PlainLlmKind


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
    options = parser().parse_args(["--scenario", "live-2", "--device", "cpu", "--set", "kv_dtype=int4"])
    with pytest.raises(UsageError, match="kv_dtype is 'int4'; it must be one of auto, bfloat16, float32, float8"):
        engine_config(options, scenarios_of(options))


def test_ranges_of_seconds() -> None:
    assert parse_range("3..15") == (3.0, 15.0)
    assert parse_range("4") == (4.0, 4.0)
    for wrong in ("x..2", "5..3", "0..3"):
        with pytest.raises(UsageError, match=wrong):
            parse_range(wrong)


def test_names_of_scenarios() -> None:
    assert parse_scenario("live-128", default_streams=16) == ScenarioName("live", 128)
    assert parse_scenario("burst", default_streams=16) == ScenarioName("burst", 16)
    assert str(parse_scenario("burst", default_streams=16)) == "burst-16"
    assert str(parse_scenario("first-audio", default_streams=16)) == "first-audio"
    with pytest.raises(ValueError, match="no scenario 'dance'; there are first-audio"):
        parse_scenario("dance", default_streams=16)


def test_all_is_every_scenario_and_the_engine_gets_room_for_the_largest() -> None:
    options = parser().parse_args(["--scenario", "all", "--device", "cpu", "--set", "max_active_clauses=3"])
    scenarios = scenarios_of(options)
    assert {each.kind for each in scenarios} == {"first-audio", "live", "sustain", "burst", "cancel", "memory"}
    config = engine_config(options, scenarios)
    assert config.max_utterances == config.max_waiting_utterances == 2 * 400 + 32
    assert config.max_active_clauses == 3
    told = parser().parse_args(["--scenario", "all", "--device", "cpu", "--set", "max_utterances=5"])
    assert engine_config(told, scenarios).max_utterances == 5


def test_paced_text_and_the_baseline_are_asked_for() -> None:
    options = parser().parse_args(["--scenario", "live-2", "--device", "cpu", "--text", "paced", "--baseline"])
    run = run_of(options)
    assert (run.tokens_per_s, run.num_plain, run.num_samples) == (30.0, 5, 100)
    assert run.plain_llms == tuple(PlainLlmKind)
    without = run_of(parser().parse_args(["--scenario", "live-2", "--device", "cpu"]))
    assert (without.tokens_per_s, without.plain_llms) == (None, ())


def test_the_baseline_without_transformers_is_the_lean_one_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["--scenario", "live-2", "--device", "cpu", "--baseline", "--baseline-llm"]
    assert run_of(parser().parse_args([*asked, "transformers"])).plain_llms == (PlainLlmKind.TRANSFORMERS,)
    monkeypatch.setattr(engine, "has_transformers", lambda: False)
    assert run_of(parser().parse_args(asked[:-1])).plain_llms == (PlainLlmKind.LEAN,)
    with pytest.raises(UsageError, match="pip install transformers"):
        run_of(parser().parse_args([*asked, "lean", "transformers"]))


def test_a_wrong_command_is_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "configure_logs", lambda *_: None)  # logging is the whole process's
    assert main(["--scenario", "dance"]) == 1
    assert capsys.readouterr().err.startswith("bench.engine: no scenario 'dance'")
    assert main(["--device", "cuda"]) == 1
    assert "stages" in capsys.readouterr().err
