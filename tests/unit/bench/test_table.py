"""The README's headline and the tables of docs/measured.md, as results make them."""

from typing import Any

from tests.unit.clients.bench.test_judge import RECORD, altered
from voicegate.bench.environment import REPOSITORY
from voicegate.bench.socket import ALONE_FLATTERY, SWEEP
from voicegate.bench.table import Found, pages, picture, replace_section, sections
from voicegate.clients.bench.judge import figures

QUALITY = {
    "environment": {"commit": "def"},
    "seeds": 2,
    "results": [
        {
            "recogniser": "whisper",
            "voice": "woman",
            "mode": "clause",
            "texts": "replies",
            "errors": 10,
            "words": 200,
            "said_more": 3,
            "sentences": [{}] * 40,
        }
    ],
}
ROW = {**figures([RECORD], window_s=(5.0, 20.0)), "server_cpu": None, "gpu": None, "clients": {"are_late": False}}


CPU = {
    "environment": {"cpu": "Some CPU", "num_cores": 2, "torch": "2.13.0", "commit": "fed"},
    "scenarios": {
        "alone:whole": ROW | {"headroom_ms": None, "stages": {}},
        "closed:1:whole": ROW
        | {"headroom_ms": {"min": 84.6}, "stages": {name: {"rtf": 0.0814} for name in ("llm", "flow", "vocoder")}},
    },
}


def gpu() -> dict[str, Any]:
    return {
        "environment": {"gpu": "NVIDIA H200", "torch": "2.11.0", "commit": "abc"},
        "model": "full-size-generated",
        "flattered_by": ["all speak with one voice"],
        "scenarios": {"sustain-300": ROW, "cancel-4": ROW | {"cancel_ms": {"p50": 1.04, "p95": 2.0}}},
        "plain": {"dtype": "bfloat16"},
        "ratios": {
            "lean": {"first_audio": 25.0, "throughput": 120.0},
            "transformers": {"first_audio": 80.0, "throughput": None},
        },
    }


def sockets(**scenarios: Any) -> dict[str, Any]:
    return {
        "environment": gpu()["environment"],
        "serve": [],
        "voices": ["generated-1", "generated-2"],
        "flattery": ["the loopback is their network"],
        "scenarios": {name.replace("__", ":"): row for name, row in scenarios.items()},
    }


def found(**files: dict[str, Any]) -> Found:
    return {f"{name.replace('_', '-')}.json": run for name, run in files.items()}.get


def test_the_pages_say_what_the_results_do() -> None:
    """Else a run wrote over a result: undo it, or write the pages again by `python -m voicegate.bench.table`."""
    for page, text in pages().items():
        assert (REPOSITORY / page).read_text() == text, page


def test_what_was_not_measured_has_no_table() -> None:
    made = sections(found(engine_cpu=CPU, quality=QUALITY))
    assert {name for name, lines in made.items() if lines} == {"cpu", "caveats", "beside", "peers", "vllm"}
    assert made["peers"] == ["**It was not run on a GPU yet.**"]
    assert made["beside"][0].endswith(made["peers"][0])
    assert made["vllm"] == ["**It was not measured on a GPU of its own yet.**"]
    assert "| alone:whole | 1 | 100 / 100 ms | – | 0.49 | – |" in made["cpu"]
    assert "| closed:1:whole | 1 | 100 / 100 ms | 85 ms | 0.49 | 0.081, 0.081, 0.081 |" in made["cpu"]
    assert made["cpu"][-1] == "| replies | whisper | woman | clause | 0.050 | 10 of 200 | 3 of 40 |"
    assert any("each with 2 seeds, commit def." in line for line in made["cpu"])
    assert len(made["caveats"]) == 2


def test_the_headline_has_three_loads_of_a_gpu_and_one_of_a_cpu() -> None:
    run = sockets(alone__whole=ROW, live__128__20=ROW | {"live": 120.4}, live__64__whole=ROW, live__400__20=None)
    own = CPU["environment"]
    slow = sockets(alone__whole=ROW | {"audible_ms": {"p50": 181.0, "p95": 190.4}}) | {"environment": own}
    lines = sections(found(socket_h200_latest=run, socket_cpu=slow))["headline"]
    assert [line for line in lines if line.startswith("| ") and " ms |" in line] == [
        "| one stream, text given whole | 1 | 100 / 100 ms | – | NVIDIA H200, commit abc |",
        "| 128 streams, text at 20 words a second | 120 | 100 / 100 ms | – | NVIDIA H200, commit abc |",
        "| one stream, text given whole, no GPU | 1 | 100 / 100 ms | 181 / 190 ms "
        "| 2 cores of an Some CPU, embedded tiny model, commit fed |",
    ]
    assert "they speak noise" in lines[-1]
    real = sections(found(socket_h200_latest=run | {"voices": ["anna"]}))["headline"]
    assert "noise" not in real[-1], "real weights are not called generated"


def test_the_mixed_load_that_is_claimed_is_the_slowest_hosts() -> None:
    def host(sustained: int, c100: float) -> dict[str, Any]:
        rows = {"mixed__400": ROW | {"c100": 0.9988}, "mixed__500": ROW | {"c100": c100}, "alone__whole": ROW}
        return sockets(**rows) | {"sustained_mixed_streams": sustained}

    quick, slow = host(500, 0.999), host(400, 0.9943)
    lines = sections(found(socket_h200=quick, socket_h200_07ebc7c=slow))["headline"]
    assert lines[-1] == (
        "The slowest of 2 H200 hosts held a mixed load of 400 streams: first message 100 / 100 ms. "
        "There 99.9 % of turns had no wait over 100 ms, and none was lost. With 500 streams it was 99.4 %."
    )
    alone = sections(found(socket_h200=quick))["headline"]
    assert "a mixed load of 500 streams" in alone[-1]
    assert "With" not in alone[-1]


def test_vllm_stands_beside_our_runner() -> None:
    theirs = sockets(live__8__20=ROW, alone__whole=ROW) | {"serve": ["--merged-hf-dir", "/a/hf"], "start_s": 123.4}
    theirs["environment"] = gpu()["environment"] | {"vllm": "0.26.0"}
    ours = sockets(alone__whole=ROW, live__8__20=None) | {"serve": ["--llm-backend", "cuda"], "start_s": 10.0}
    lines = sections(found(vllm_h200=theirs, vllm_ours_h200=ours))["vllm"]
    card = "NVIDIA H200, torch 2.11.0, commit abc"
    assert lines[2:4] == [
        f"| vllm | vllm 0.26.0, {card}, `voicegate serve --merged-hf-dir hf`, ready after 123 s |",
        f"| cuda | {card}, `voicegate serve --llm-backend cuda`, ready after 10 s |",
    ]
    assert lines[-3:] == [
        "| live:8:20 | vllm | 0 | 1 | 100 / 100 ms | 100.0 % / 100.0 % | 0 ms | 0 |",
        "| alone:whole | vllm | 0 | 1 | 100 / 100 ms | 100.0 % / 100.0 % | 0 ms | 0 |",
        "| alone:whole | cuda | 0 | 1 | 100 / 100 ms | 100.0 % / 100.0 % | 0 ms | 0 |",
    ]


def test_the_engine_alone_says_what_its_weights_are() -> None:
    made = sections(found(engine_h200=gpu()))
    lines = made["engine"]
    assert lines[0].endswith("The weights are generated: they speak noise, at equal speed.")
    assert "| sustain-300 | 1 | 100 / 100 / - ms | 100.0 % / 100.0 % | 0.495 | 0 |" in lines
    assert not any(line.startswith("| cancel-4") for line in lines)
    assert any("one voice" in line for line in made["caveats"])
    assert "p50 1.0 ms" in next(line for line in lines if line.startswith("Cancel"))
    assert lines[-2:] == [
        "| Hugging Face's Qwen2, as in the reference | first audio 80 times better |",
        "| the engine's own network | first audio 25 times better, throughput 120 times better |",
    ]


def test_a_gpus_loads_stand_in_one_table() -> None:
    late = {
        **figures([altered(lag_s=0.25)], window_s=(5.0, 20.0)),
        "server_cpu": {"event_loop": 0.214, "busiest_other_thread": None},
        "gpu": {"power_w": 512.3},
        "clients": {"are_late": True},
    }
    run = sockets(mixed__400=late, live__500__whole=None, alone__whole=ROW)
    lines = sections(found(socket_h200=run))["gpu"]
    assert "`voicegate serve` as shipped: one NVIDIA H200" in lines[0]
    assert lines[0].endswith("commit abc, 2 voices.")
    assert "| mixed:400 | 0 | 1 | 100 / 100 / - ms | – | 100.0 % / 100.0 % | 0 ms | 0 | 21 % / - | 512 W |" in lines
    alone = next(line for line in lines if line.startswith("| alone:whole"))
    assert alone.startswith("| alone:whole | 1 | 1 | 100 / 100"), "one stream is one, however soon its next turn begins"
    assert "Texts were sent late, and first audio counts from then; p95: mixed:400 (250 ms)." in lines
    assert "The clients themselves were late in mixed:400." in lines
    assert not any("live:500" in line for line in lines)
    several = sections(found(socket_h200=run | {"serve": ["--gpus", "0,1"]}))["gpu"]
    assert "`voicegate serve --gpus 0,1`: 2 NVIDIA H200" in several[0]
    changed = run | {"environment": run["environment"] | {"is_dirty": True}}
    assert "commit abc, with changes, " in sections(found(socket_h200=changed))["gpu"][0]
    caveats = sections(found(socket_h200=run))["caveats"]
    assert sum("their network" in line for line in caveats) == 1
    assert any(ALONE_FLATTERY in line for line in caveats)


def test_another_gpu_has_a_table_of_its_own() -> None:
    other = sockets(alone__whole=ROW) | {"environment": gpu()["environment"] | {"gpu": "NVIDIA H100"}}
    made = sections(found(socket_h200=sockets(alone__whole=ROW), socket_h100=other))
    assert "one NVIDIA H100" in made["other-gpu"][0]
    assert "H100" not in "".join([*made["gpu"], *made["headline"]])


def test_the_picture_joins_no_points_between_which_nothing_was_measured() -> None:
    few = picture(sockets(alone__whole=ROW, live__64__whole=ROW, live__400__whole=ROW, alone__20=ROW))
    assert few.startswith("<svg ")
    assert "live, whole text: p95" in few
    assert "words/s" not in few, "one number of streams is no series"
    assert "<polyline" not in few
    assert few.count("<circle ") == 2 * (3 + 1), "p50 and p95 at each number of streams, and in the legend"
    swept = picture(sockets() | {"scenarios": dict.fromkeys(("alone:whole", "alone:20", *SWEEP), ROW)})
    assert swept.count("<circle ") == 2 * 2 * 10, "p50 and p95, of texts whole and written, at each number of streams"
    assert swept.count("<polyline") == 2 * 2
    assert picture(sockets(mixed__400=ROW)) == ""


def test_what_was_not_compared_is_not_spoken_of() -> None:
    run = gpu() | {"ratios": {"lean": {"first_audio": None, "throughput": None}}}
    assert not any("plain way" in line for line in sections(found(engine_h200=run))["engine"])
    del run["plain"], run["ratios"]
    assert not any("plain way" in line for line in sections(found(engine_h200=run))["engine"])


def test_a_section_is_replaced_and_nothing_else() -> None:
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n"
    assert replace_section(text, "x", ["new", "lines"]) == "a\n<!-- x -->\nnew\nlines\n<!-- /x -->\nb\n"


def test_several_gpus_stand_beside_one() -> None:
    rows = [{"gpus": 1, "streams": 300, "loaded": ROW}, {"gpus": 2, "streams": 800, "loaded": None}]
    scale = {"environment": gpu()["environment"], "rows": rows}
    lines = sections(found(replicas_scale_2xh200=scale))["gpus"]
    assert (
        sum(line.startswith("| 1 | 300 | 1 | 100 / 100 / - ms | 100.0 % / 100.0 % | 0 ms | 0 |") for line in lines) == 1
    )
    assert any(
        line.startswith("Engine processes") and "NVIDIA H200, torch 2.11.0, commit abc." in line for line in lines
    )
    assert not any(line.startswith("| 2 | 800") for line in lines)
