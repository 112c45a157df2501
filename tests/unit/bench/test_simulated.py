"""bench.simulated: the device's clock and lanes, and a short load on them that is the same every time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from voicegate.bench import environment
from voicegate.bench.full_size import natural
from voicegate.bench.full_size.families import FULL_SIZES, raw_json, special_tokens_of
from voicegate.bench.full_size.source import tokenizer_files
from voicegate.bench.simulated import __main__ as command
from voicegate.bench.simulated.device import Device, euler_step_s, is_early, llm_step_s
from voicegate.bench.simulated.models import VOICES, simulated
from voicegate.bench.simulated.rules import RULES, without
from voicegate.bench.simulated.run import Run
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.checkpoint.model_json import check_model_json
from voicegate.engine.checkpoint.tokenizer import build_tokenizer
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import AudioFormat, Codec, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.model.config import COSYVOICE3
from voicegate.engine.text.spoken_length import spoken_letters


def test_work_is_done_in_order_and_marks_are_reached_behind_it() -> None:
    device = Device()
    assert device.llm.mark().is_reached, "nothing is before it"
    device.llm.launch(0.002)
    first = device.llm.mark()
    device.llm.launch(0.003)
    second = device.llm.mark()
    assert device.next_mark_s == pytest.approx(0.002)
    device.run(0.0025)
    assert (first.is_reached, second.is_reached) == (True, False)
    device.run(0.01)
    assert second.reached_s == pytest.approx(0.005)
    assert second.seconds_since(first) == pytest.approx(0.003)
    assert (device.now_s, device.llm.busy_s) == (0.01, pytest.approx(0.005))


@pytest.mark.parametrize(("is_reprefill", "llm_s", "slow"), [(False, 0.0026, 1.4), (True, 0.0019, 1.65)])
def test_lanes_slow_each_other_down_for_as_long_as_both_work(is_reprefill: bool, llm_s: float, slow: float) -> None:
    device = Device()
    device.llm.launch(0.001, is_reprefill=is_reprefill)
    device.token2wav.launch(0.010, num_blocks=34)
    llm, flow = device.llm.mark(), device.token2wav.mark()
    device.run(0.1)
    assert llm.reached_s == pytest.approx(llm_s)
    assert flow.reached_s == pytest.approx(0.010 + llm_s * (1 - 1 / slow))


@pytest.mark.parametrize(("num_blocks", "llm_s", "slow"), [(1, 0.0012, 2.05), (2, 0.0012, 2.05), (16, 0.00132, 1.7)])
def test_steps_whose_kernels_begin_early_hold_the_device(num_blocks: int, llm_s: float, slow: float) -> None:
    device = Device()
    device.llm.launch(0.001, is_early=is_early(16, 0))
    device.token2wav.launch(0.010, num_blocks=num_blocks)
    llm, flow = device.llm.mark(), device.token2wav.mark()
    device.run(0.1)
    assert llm.reached_s == pytest.approx(llm_s)
    assert flow.reached_s == pytest.approx(0.010 + llm_s * (1 - 1 / slow))
    assert not is_early(17, 0)
    assert not is_early(1, 200), "a new request's reading"


def test_an_llm_apart_and_the_flow_take_their_own_time() -> None:
    device = Device(is_llm_apart=True)
    device.llm.launch(0.001)
    device.token2wav.launch(0.010, num_blocks=34)
    llm, flow = device.llm.mark(), device.token2wav.mark()
    device.run(0.1)
    assert (llm.reached_s, flow.reached_s) == (pytest.approx(0.001), pytest.approx(0.010))


def test_steps_take_what_they_were_measured_to_take() -> None:
    assert llm_step_s(1, 0) == pytest.approx(0.46e-3)
    assert llm_step_s(256, 0) == pytest.approx(1.56e-3)
    assert llm_step_s(36, 258) == pytest.approx(1.68e-3, rel=0.02), "1.9 ms in the trace, less ADR 0012's tiles"
    assert 10 * euler_step_s(34 * 50) == pytest.approx(1.03 * 36.4e-3)
    assert 10 * euler_step_s(20) == pytest.approx(1.03 * 6.2e-3), "less than a block takes as long"


def test_a_load_is_served_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)  # logging is the whole process's
    runs = []
    for name, flags in (("a.json", []), ("b.json", ["--host-time"])):
        arguments = ["--scenarios", "live:3:20", "--duration-s", "1", "--json", str(tmp_path / name), *flags]
        assert command.main(arguments) == 0
        runs.append(json.loads((tmp_path / name).read_text())["scenarios"]["live:3:20"])
    host = runs[1]["host"]
    runs[1]["host"] = {"share_of_time": host["share_of_time"]}
    assert runs[0] == runs[1]
    num = host["num"]
    assert host["cpu_s"] > 0
    assert 0 < num["flow_block"] < num["step"]
    assert 0 < num["command"] < num["llm_row"]
    assert runs[0]["num"] >= 3
    assert (runs[0]["num_failed"], runs[0]["num_unheard"], runs[0]["c100"]) == (0, 0, 1.0)
    assert 100 < runs[0]["first_audio_ms"]["p50"] < 400
    assert runs[0]["llm"]["reprefills_per_s"] > 0


def test_jobs_run_beside_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)
    path = tmp_path / "jobs.json"
    options = ["--jobs", "--duration-s", "0.3", "--scenarios", "live:8:whole", "--json", str(path)]
    assert command.main(options) == 0
    report = json.loads(path.read_text())
    jobs = report["scenarios"]["live:8:whole"]["jobs"]
    assert report["has_jobs"]
    assert jobs["audio_s_per_s"] > 0
    assert 63 <= jobs["parts"] <= 64, "one may just have ended"


@pytest.mark.parametrize("num_words", range(4, 10))
def test_what_is_done_while_the_thread_is_at_work_is_fetched(num_words: int) -> None:
    """Also where nothing else would wake it: the last block of the only utterance."""
    config = EngineConfig(environment.REPOSITORY / "models" / "tiny", device="cuda", encoder_processes=0)
    config = replace(config, expected_tokens_per_text_token=12).resolved("cuda")
    device = Device()
    run = Run(config, device, simulated(config, device, tokens_per_text_token=4), host_slowdown=6)
    request = UtteranceRequest(
        UtteranceId("a"), f"prompt-{VOICES[0][0]}", AudioFormat(Codec.PCM_S16LE), SpeakingMode.INCREMENTAL
    )
    run.core.submit(request, seed=0)
    run.core.push_text(request.utterance_id, " ".join(["light"] * num_words) + ".")
    run.core.end_text(request.utterance_id)
    run.run(30)
    assert run.core.num_live == 0


def test_what_cannot_be_simulated_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)
    assert command.main(["--scenarios", "closed:4"]) == 1
    assert "closed:4: alone, live and mixed are simulated" in capsys.readouterr().err


def test_of_a_mixed_load_every_writer_has_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)
    arguments = ["--scenarios", "mixed:12", "--duration-s", "4", "--json", str(tmp_path / "mixed.json")]
    assert command.main(arguments) == 0
    found = json.loads((tmp_path / "mixed.json").read_text())["scenarios"]["mixed:12"]
    assert sum(row["num"] for row in found["by_writer"].values()) == found["num"]
    assert {"whole", "20"} <= set(found["by_writer"])
    assert found["by_writer"]["whole"]["first_audio_ms"]["p50"] < found["by_writer"]["20"]["first_audio_ms"]["p50"]
    assert "\n  whole" in capsys.readouterr().out


def test_its_voices_are_those_of_a_generated_checkpoint(tmp_path: Path) -> None:
    sizes = FULL_SIZES[COSYVOICE3]
    model = check_model_json(raw_json(sizes, name="model.json", decoding=ConvertOptions().decoding), name="model.json")
    merges = natural.english_merges()
    for name, content in tokenizer_files(sizes, merges).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    tokenizer = build_tokenizer(tmp_path / "vocab.json", tmp_path / "merges.txt", specials=special_tokens_of(sizes))
    prompts = list(natural.prompts(natural.SpeechCounts(model, tokenizer)))
    assert [num_tokens for num_tokens, _ in VOICES] == [each.num_tokens for each in prompts]
    paces = [each.num_tokens / spoken_letters(each.transcript) for each in prompts]
    assert [tokens_per_letter for _, tokens_per_letter in VOICES] == pytest.approx(paces, abs=0.005)


def test_without_the_light_guard_all_have_the_usual_one() -> None:
    config = EngineConfig(environment.REPOSITORY / "models" / "tiny", device="cuda", encoder_processes=0)
    config, device = config.resolved("cuda"), Device()
    models = simulated(config, device, tokens_per_text_token=4)
    guards = Run(config, device, models, host_slowdown=1).core._limits
    assert guards.light_guard_s < guards.guard_s
    with without(["light-guard"]):
        guards = Run(config, device, models, host_slowdown=1).core._limits
    assert guards.light_guard_s == guards.guard_s


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_switched_off_and_on_again(name: str) -> None:
    def values() -> list[object]:
        return [getattr(place, part) for place, part, _ in RULES[name]]

    before = values()
    with without([name]):
        assert values() == [value for _, _, value in RULES[name]] != before
    assert values() == before


def test_what_is_no_rule_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)
    assert command.main(["--without", "luck"]) == 1
    assert "--without luck: the rules are buffered-steps" in capsys.readouterr().err
