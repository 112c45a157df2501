"""`voicegate size`: what is measured stands as measured, what is computed is marked, and money follows both."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.bench.full_size.source import Sizes, raw_model_json
from voicegate.bench.full_size.stepaudio2 import StepAudio2Sizes, stepaudio2_raw_json
from voicegate.engine.checkpoint.conversion import Decoding
from voicegate.gateway.cli import main
from voicegate.gateway.cli.cards import CARDS, H100, H200, MEASURED, cost, speed_of, streams_by_memory

ROOT = Path(__file__).parents[3]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def released(tmp_path: Path) -> str:
    (tmp_path / "model.json").write_text(json.dumps(raw_model_json(Sizes(), name="cosyvoice3")))
    return str(tmp_path)


def sized(capsys: Captured, *arguments: str) -> dict[str, dict[str, Any]]:
    assert main.run(["size", "--json", *arguments]) == 0
    return {row["card"]: row for row in json.loads(capsys.readouterr().out)}


def test_the_h200s_figures_are_those_of_its_run() -> None:
    scenarios = json.loads((ROOT / "bench/results/engine-h200-3d38cbd.json").read_text())["scenarios"]
    h200 = MEASURED["H200"]
    assert h200.single_first_audio_ms == round(scenarios["first-audio"]["first_audio_ms"]["p50"], 1)
    assert h200.audio_s_per_s == round(scenarios["burst-400"]["audio_s_per_s"], 1)
    buffered, most = scenarios[f"sustain-{h200.latency_streams}"], scenarios[f"sustain-{h200.most_streams}"]
    assert buffered["first_audio_ms"]["p95"] < 100
    assert {buffered["c100"], most["c100"]} == {1.0}
    assert not buffered["num_failed"] + most["num_failed"]


def test_what_is_computed_lies_where_its_card_does() -> None:
    for card in (H200, H100):
        assert speed_of(card) is MEASURED[card.name]
    speeds = {name: speed_of(card).audio_s_per_s for name, card in CARDS.items()}
    assert speeds["A10G"] < speeds["L4"] < speeds["RTX4090"] < speeds["L40S"] < speeds["A100"] < speeds["H100"]
    for name in set(CARDS) - set(MEASURED):
        assert speed_of(CARDS[name]).latency_streams < speed_of(CARDS[name]).most_streams
        assert speed_of(CARDS[name]).single_first_audio_ms > MEASURED["H200"].single_first_audio_ms


def test_memory_bounds_what_arithmetic_could_do(released: str, capsys: Captured) -> None:
    cards = sized(capsys, "--model-dir", released)
    assert list(cards) == list(CARDS)
    assert cards["H200"]["streams_by_memory"] == cards["H200"]["slots"] == 448
    assert cards["H200"]["is_measured"]
    assert not cards["L4"]["is_measured"]
    assert cards["L4"]["fits"]
    assert 0 < cards["L4"]["streams_by_memory"] < cards["L40S"]["streams_by_memory"]
    wide = sized(capsys, "--model-dir", released, "--kv-dtype", "bfloat16", "--card", "H200")
    # As measured, when a voice's prompt had one layout: nobody waited for memory at 300 streams, some did at 400.
    assert 300 * 0.95 < wide["H200"]["streams_by_memory"] < 300
    assert streams_by_memory(-10.0, num_slots=16) == 0


def test_cost(released: str, capsys: Captured) -> None:
    assert cost(3.0, 300.0, characters_per_s=14.0).per_speech_hour == pytest.approx(0.01)
    assert cost(3.0, 300.0, characters_per_s=10.0).per_million_characters == pytest.approx(0.01 * 1e6 / 36_000)
    asked = ("--model-dir", released, "--card", "H200", "--price", "3")
    full = sized(capsys, *asked)["H200"]["cost"]
    half = sized(capsys, *asked, "--busy-share", "0.5")["H200"]["cost"]
    assert full["latency"]["per_speech_hour"] == pytest.approx(0.01)
    assert half["latency"]["per_speech_hour"] == pytest.approx(0.02)
    assert half["batch"] == full["batch"], "a batch leaves no stream idle"
    assert sized(capsys, *asked[:4])["H200"]["cost"]["latency"] is None


def test_the_table_in_the_docs_is_what_the_command_says(released: str, capsys: Captured) -> None:
    assert main.run(["size", "--model-dir", released, "--price", "1"]) == 0
    assert capsys.readouterr().out.rstrip() in (ROOT / "docs/operations/sizing.md").read_text()


def test_another_model_has_room_but_no_known_speed(capsys: Captured) -> None:
    assert main.run(["size", "--model-dir", str(TINY_MODEL_DIR), "--card", "H200", "--price", "1"]) == 0
    shown = capsys.readouterr()
    assert "not of the sizes that were measured" in shown.err
    assert shown.out.splitlines()[1].split() == ["H200", "139.8", "448", "-", "-", "-"]
    assert shown.out.splitlines()[-1].split() == ["H200", *["-"] * 6]


APART = ("--llm-device", "cuda:0", "--token2wav-devices")


def test_a_host_with_the_llm_on_a_gpu_of_its_own(released: str, capsys: Captured) -> None:
    """Blocks have more room beside no LLM, as many times as there are token2wavs; speed nobody has measured."""
    asked = ("--model-dir", released, "--card", "L40S")
    together = sized(capsys, *asked)["L40S"]
    one = sized(capsys, *asked, *APART, "cuda:1")["L40S"]
    three = sized(capsys, *asked, *APART, "cuda:1,cuda:2,cuda:3")["L40S"]
    assert [row["gpus"] for row in (together, one, three)] == [1, 2, 4]
    assert one["streams_by_memory"] >= together["streams_by_memory"]
    assert three["streams_by_memory"] == 3 * one["streams_by_memory"]
    assert one["slots"] == together["slots"]
    assert three["slots"] == 3 * one["slots"]
    assert one["least_gib"] < together["least_gib"]
    assert one["audio_s_per_s"] is None
    assert three["cost"]["batch"] is None


def test_one_llm_has_so_many_slots(released: str, capsys: Captured) -> None:
    devices = ",".join(f"cuda:{number}" for number in range(1, 8))
    h200 = sized(capsys, "--model-dir", released, "--card", "H200", *APART, devices)["H200"]
    assert h200["slots"] == h200["streams_by_memory"] == 1022
    asked = ["size", "--model-dir", released, "--card", "H200", *APART, devices, "--max-active-clauses", "200"]
    assert main.run(asked) == main.EXIT_FAILED
    assert "one LLM takes 1024 at once" in capsys.readouterr().err
    assert main.run([*asked[:-2], "--price", "1"]) == 0
    shown = capsys.readouterr()
    assert "of 8 GPUs together, the LLM on one of them, by memory alone" in shown.err
    assert shown.out.splitlines()[1].split() == ["H200", "139.8", "1022", "-", "-", "-"]


def test_an_llm_that_has_no_room_on_its_gpu_fits_nowhere(released: str, capsys: Captured) -> None:
    devices = ("cuda:1", "cuda:1,cuda:2,cuda:3")
    asked = ["size", "--model-dir", released, "--card", "A10G", "--precision", "float32", *APART]
    slots = ["--max-active-clauses", "250", "--json"]
    assert [main.run([*asked, each, *slots]) for each in devices] == [0, main.EXIT_FAILED], capsys.readouterr().out


@pytest.mark.parametrize(("part", "gib"), [("vocoder", 0.8), ("flow", 2.5)])
def test_tensorrts_engines_take_their_room(released: str, capsys: Captured, part: str, gib: float) -> None:
    asked = ("--model-dir", released, "--card", "L4")
    ours, tensorrts = (sized(capsys, *asked, f"--{part}-backend", name)["L4"] for name in ("cuda", "tensorrt"))
    assert tensorrts["least_gib"] == pytest.approx(ours["least_gib"] + gib, abs=0.06)
    assert tensorrts["streams_by_memory"] < ours["streams_by_memory"]


def test_what_does_not_fit_is_said(released: str, capsys: Captured) -> None:
    asked = ["size", "--model-dir", released, "--card", "A10G", "--max-active-clauses", "448", "--precision", "float32"]
    assert main.run(asked) == main.EXIT_FAILED
    assert "does not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--price", "nan"], "nan is not more than 0"),
        (["--price", "abc"], "abc is not a number"),
        (["--busy-share", "1.1"], "at most 1"),
        (["--card", "H300"], "invalid choice"),
        (["--kv-dtype", "int4"], "--kv-dtype is 'int4'"),
        (["--model-dir", "/nowhere"], "model.json"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: list[str], message: str, capsys: Captured) -> None:
    with suppress(SystemExit):
        assert main.run(["size", *arguments]) == main.EXIT_FAILED
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_of_the_second_family_nothing_was_measured_and_memory_is_counted_in_its_own_blocks(
    capsys: Captured, released: str, tmp_path: Path
) -> None:
    """It has nearly as many weights as the first, and blocks of a fifth of a second, whose second takes a third."""
    other = tmp_path / "second"
    other.mkdir()
    raw = stepaudio2_raw_json(StepAudio2Sizes(), name="second", decoding=Decoding.ORIGINAL)
    (other / "model.json").write_text(json.dumps(raw))
    settings = ("--max-active-clauses", "200", "--kv-dtype", "bfloat16", "--card", "L40S")
    first = sized(capsys, "--model-dir", released, *settings)["L40S"]
    second = sized(capsys, "--model-dir", str(other), *settings)["L40S"]
    assert second["audio_s_per_s"] is None
    assert first["audio_s_per_s"] is not None
    assert 2 * first["streams_by_memory"] < second["streams_by_memory"] < 2.8 * first["streams_by_memory"]
