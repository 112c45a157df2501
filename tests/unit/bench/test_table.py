"""The README's lines: from the CPU's result alone, and with a GPU's before it."""

from typing import Any

from tests.unit.bench.engine.test_report import GOOD, PLAIN_RUN, outcome, scenarios
from tests.unit.clients.bench.test_judge import RECORD, altered
from voicegate.bench.engine.report import outcome_report
from voicegate.bench.environment import REPOSITORY
from voicegate.bench.socket import ALONE_FLATTERY, SWEEP
from voicegate.bench.table import pages, picture, replace_section, results, sections
from voicegate.clients.bench.judge import figures


def cpu() -> dict[str, Any]:
    loaded = results("engine-cpu.json")
    assert loaded is not None
    return loaded


QUALITY = {
    "environment": {"commit": "def"},
    "results": [{"voice": "rms", "mode": "clause", "wer": 0.05, "errors": 10, "words": 200}],
}


def gpu() -> dict[str, Any]:
    return {
        "environment": {"gpu": "NVIDIA H200", "torch": "2.11.0", "commit": "abc"},
        "model": "generated",
        "lengths": "limit",
        "config": {"max_waiting_utterances": 832},
        "voices": ["generated"],
        "load": {"wanted_audio_s": [3.0, 15.0], "tokens_per_s": None},
        "scenarios": {
            **scenarios(),
            "cancel-4": {**outcome_report(outcome(GOOD)), "cancel_ms": {"p50": 1.04, "p95": 2.0}},
            "memory": {"mib_per_stream_second": 90.2, "mib_per_stream": 3.0},
        },
        "plain": PLAIN_RUN,
        "ratios": {
            "lean": {"first_audio": 25.0, "throughput": 120.0},
            "transformers": {"first_audio": 80.0, "throughput": None},
        },
    }


def test_the_pages_say_what_the_results_do() -> None:
    """Else a run wrote over a result: undo it, or write the pages again by `python -m voicegate.bench.table`."""
    for page, text in pages().items():
        assert (REPOSITORY / page).read_text() == text, page


def test_without_a_gpus_result_the_cpus_stands_alone() -> None:
    made = sections(None, cpu(), QUALITY)
    assert len(made["headline"]) == 1
    assert "without a GPU" in made["headline"][0]
    assert any(line.startswith("| short, ") for line in made["bench"])
    assert made["bench"][-1].endswith("commit def: rms clause 0.050 (10/200).")


def test_a_gpus_result_comes_first_and_says_what_its_weights_are() -> None:
    made = sections(gpu(), cpu(), QUALITY)
    assert made["headline"][0] == (
        "**First audio 100 ms after a short text, 300 streams sustained in real time, 600 seconds of audio a second**, "
        "on one NVIDIA H200, the model generated, whose weights are generated (its speech is noise; speed is the same)."
    )
    assert made["headline"][-1] == sections(None, cpu(), QUALITY)["headline"][0]
    lines = made["bench"]
    assert "| sustain-300 | 100 | 100 / 100 / 100 ms | 100.0 % / 100.0 % | 0.250 | 12 |" in lines
    assert not any(line.startswith(("| cancel-4", "| memory")) for line in lines)
    assert any(line.startswith("What flatters these figures: ") and "one voice" in line for line in lines)
    remarks = next(line for line in lines if line.startswith("Cancel"))
    assert "p50 1.0 ms" in remarks
    assert "90 MiB a second" in remarks
    assert remarks.rstrip().endswith(
        "first audio 80 times better where Hugging Face's Qwen2 decodes, as in the reference; "
        "first audio 25 times better, throughput 120 times better where the engine's own network does."
    )
    assert any(line.startswith("| short, ") for line in lines)


def test_who_was_not_heard_to_the_end_by_an_engine_is_told() -> None:
    whole = gpu()
    assert not any("failed" in line for line in sections(whole, cpu(), QUALITY)["bench"])
    whole["scenarios"]["sustain-300"] |= {"num_failed": 3, "num_cut_off": 1}
    assert "Not served or not to the end: sustain-300 3 failed, 1 cut off." in sections(whole, cpu(), QUALITY)["bench"]


def test_what_sockets_saw_stands_apart_from_what_the_engine_alone_did() -> None:
    run = {
        "environment": gpu()["environment"],
        "serve": [],
        "voices": ["one", "two"],
        "flattery": ["the loopback is their network"],
        "scenarios": {
            "mixed:400": {
                **figures([altered(lag_s=0.25)], window_s=(5.0, 20.0)),
                "server_cpu": {"event_loop": 0.214, "busiest_other_thread": None},
                "gpu": {"power_w": 512.3},
                "clients": {"are_late": True},
            },
            "live:500:whole": None,
        },
    }
    apart = {**run, "serve": ["--gpus", "0,1"]}
    lines = sections(gpu(), cpu(), QUALITY, [run, apart])["felt"]
    assert "`voicegate serve` as shipped: one NVIDIA H200" in lines[0]
    assert "2 voices" in lines[0]
    assert any("`voicegate serve --gpus 0,1`: 2 NVIDIA H200" in line for line in lines)
    assert sum("their network" in line for line in lines) == 1
    other = run | {"environment": run["environment"] | {"gpu": "NVIDIA H100"}}
    with_other = sections(gpu(), cpu(), QUALITY, [run, apart], elsewhere=other)
    assert sum(line.startswith("On another GPU, through sockets") for line in with_other["bench"]) == 1
    assert with_other["headline"] == sections(gpu(), cpu(), QUALITY, [run, apart])["headline"]
    row = "| mixed:400 | 0 | 1 | 100 / 100 / - ms | 100.0 % / 100.0 % | 0 ms | 0 | 21 % / - | 512 W |"
    assert row in lines
    assert "Texts were sent late, and first audio counts from then; p95: mixed:400 (250 ms)." in lines
    assert "commit abc;" in lines[0]
    changed = run | {"environment": run["environment"] | {"is_dirty": True}}
    assert "commit abc, with changes;" in sections(gpu(), cpu(), QUALITY, [changed])["felt"][0]
    assert not any(line.startswith("| sustain-300") for line in lines)
    assert "The clients themselves were late in mixed:400." in lines
    assert not any("live:500" in line for line in lines)


def test_the_headline_is_what_a_user_feels_and_the_picture_shows_it_against_the_streams() -> None:
    row = {**figures([RECORD], window_s=(5.0, 20.0)), "server_cpu": None, "gpu": None, "clients": {"are_late": False}}
    run = {
        "environment": gpu()["environment"],
        "serve": [],
        "voices": ["generated-1"],
        "flattery": [],
        "scenarios": {
            **dict.fromkeys(("alone:whole", "alone:20"), row),
            "live:64:whole": row | {"live": 66.0},
            "live:400:whole": row | {"live": 370.4},
        },
    }
    assert sections(gpu(), cpu(), QUALITY, [run])["headline"][0] == (
        "**First audio 100 ms after a text is given whole and 100 ms after the first of 20 words a second; 370 streams "
        "of whole texts without a gap of 100 ms**, through sockets as shipped, on one NVIDIA H200, with generated "
        "weights of the released size (they speak noise; speed is the same)."
    )
    real = sections(gpu(), cpu(), QUALITY, [run | {"voices": ["anna"]}])["headline"][0]
    assert real.endswith("through sockets as shipped, on one NVIDIA H200."), "real weights are not called generated"
    alone = next(line for line in sections(gpu(), cpu(), QUALITY, [run])["felt"] if line.startswith("| alone:whole"))
    (flattered,) = (line for line in sections(gpu(), cpu(), QUALITY, [run])["felt"] if line.startswith("What flatters"))
    assert ALONE_FLATTERY in flattered
    assert alone.startswith("| alone:whole | 1 | 1 | 100 / 100"), "one stream is one, however soon its next turn begins"
    late = {**row, "c100": 0.99}
    again = run | {"scenarios": {"live:400:whole": late, "live:64:whole": row | {"live": 64.4}}}
    assert "; 64 streams of whole texts without" in sections(gpu(), cpu(), QUALITY, [run, again])["headline"][0]
    drawn = picture(run)
    assert drawn.startswith("<svg ")
    assert "live, whole text: p95" in drawn
    assert "words/s" not in drawn, "one number of streams is no line"
    swept = picture(run | {"scenarios": dict.fromkeys(("alone:whole", "alone:20", *SWEEP), row)})
    assert swept.count("<circle ") == 2 * 2 * 10, "p50 and p95, of texts whole and written, at each number of streams"
    assert picture(run | {"scenarios": {"mixed:400": row}}) == ""


def test_what_was_not_compared_is_not_spoken_of() -> None:
    run = gpu() | {"ratios": {"lean": {"first_audio": None, "throughput": None}}}
    assert not any("plain way" in line for line in sections(run, cpu(), QUALITY)["bench"])
    del run["plain"], run["ratios"]
    assert not any("plain way" in line for line in sections(run, cpu(), QUALITY)["bench"])


def test_a_section_is_replaced_and_nothing_else() -> None:
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n"
    assert replace_section(text, "x", ["new", "lines"]) == "a\n<!-- x -->\nnew\nlines\n<!-- /x -->\nb\n"


def test_several_gpus_stand_beside_one() -> None:
    row = figures([RECORD], window_s=(5.0, 20.0))
    rows = [{"gpus": 1, "streams": 300, "loaded": row}, {"gpus": 2, "streams": 800, "loaded": None}]
    lines = sections(gpu(), cpu(), QUALITY, scale={"environment": gpu()["environment"], "rows": rows})["bench"]
    assert (
        sum(line.startswith("| 1 | 300 | 1 | 100 / 100 / - ms | 100.0 % / 100.0 % | 0 ms | 0 |") for line in lines) == 1
    )
    assert any(
        line.startswith("Engine processes") and "NVIDIA H200, torch 2.11.0, commit abc;" in line for line in lines
    )
    assert not any(line.startswith("| 2 | 800") for line in lines)
