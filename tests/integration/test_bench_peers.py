"""bench.peers: a stand-in that speaks vLLM-Omni's documented protocol, beside a real `voicegate serve`."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import upstream
from tests.support import vllm_omni as standin
from tests.support.golden import TINY_MODEL_DIR
from tests.support.quick_model import quick_model
from tests.unit.clients.deadline import deadline
from voicegate.bench.peers import __main__ as peers
from voicegate.bench.peers import embedded, vllm_omni
from voicegate.clients.bench.usage import children


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_WARM_S", 0.2)
    monkeypatch.setenv("VOICEGATE_THREADS", "1")


def arguments(tmp_path: Path) -> list[str]:
    if not (tmp_path / "packages").exists():
        standin.packages(tmp_path / "packages")
        standin.model(tmp_path / "model", voice="man")
        quick_model(tmp_path / "ours")
    directories = {"--packages": tmp_path / "packages", "--peer-model": tmp_path / "model"}
    directories |= {"--model": tmp_path / "ours", "--json": tmp_path / "peers.json", "--logs": tmp_path / "logs"}
    return [text for flag, directory in directories.items() for text in (flag, str(directory))]


def run(tmp_path: Path, *flags: str) -> dict[str, Any]:
    with deadline():
        peers.main([*arguments(tmp_path), "--duration-s", "0.5", *flags])
    report: dict[str, Any] = json.loads((tmp_path / "peers.json").read_text())
    return report


def test_a_peer_and_voicegate_stand_in_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni", "voicegate")["servers"]
    for server in servers.values():
        row = server["loads"]["closed:1:whole"]
        assert "failed" not in server
        assert row["outcomes"]["done"] == row["first_audio_ms"]["num"]
    settings = servers["vllm-omni"]["settings"]
    assert settings["versions"] == {"vllm": "0.26.0", "vllm-omni": "0.26.0"}
    assert [stage.get("dtype") for stage in settings["deploy"]["stages"]] == ["float32", None]
    assert "dtype: float32" in (tmp_path / "logs" / "vllm-omni.log").read_text()
    shown = capsys.readouterr().out
    assert "| closed:1:whole |" in shown
    assert "| | stage 0: dtype float32 max_num_seqs 8 |\n| | stage 1: max_num_seqs 8 |\n| | COSYVOICE3_TRT=0 |" in shown
    assert "| voicegate | the LLM of vllm-omni runs in float32, not in bfloat16 |" in shown


def test_a_later_run_goes_on_where_one_ended(tmp_path: Path) -> None:
    before = run(tmp_path, "--loads", "closed:1", "closed:2", "--servers", "vllm-omni")
    (tmp_path / "packages" / "vllm_omni" / "entrypoints" / "cli" / "main.py").write_text(
        "raise SystemExit(1)\n"
    )  # no server starts
    assert run(tmp_path, "--loads", "closed:1", "closed:2", "--servers", "vllm-omni") == before
    with pytest.raises(SystemExit):
        run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")


def test_a_peer_that_dies_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_DIES_AFTER_SOCKETS", "9")  # 1 and 4 while it warms, with spare ones: 2 + 6 at most
    servers = run(tmp_path, "--loads", "closed:1", "closed:4", "closed:16", "--servers", "vllm-omni")["servers"]
    first, second, third = servers["vllm-omni"]["loads"].values()
    assert first["first_audio_ms"]["num"]
    assert "cannot connect" in second["failed"]
    assert third == {"failed": "left out after closed:4:whole"}


def test_upstreams_classes_are_given_a_text_whole_and_as_it_is_written(tmp_path: Path) -> None:
    path = upstream.packages(tmp_path / "upstream")
    embedded.write(tmp_path / "source", TINY_MODEL_DIR)
    names = ("upstream", "upstream-generator")
    flags = ["--upstream", str(path), "--peer-model", str(tmp_path / "source"), "--json", str(tmp_path / "peers.json")]
    flags += ["--logs", str(tmp_path / "logs"), "--duration-s", "0.5", "--loads", "closed:1", "closed:1:40"]
    with deadline():
        peers.main([*flags, "--servers", *names, "--rounds", "2"])
    servers = json.loads((tmp_path / "peers.json").read_text())["servers"]
    for name in names:
        assert servers[name]["loads"].keys() == {"closed:1:whole", "closed:1:40", "closed:1:whole 2", "closed:1:40 2"}
        for row in servers[name]["loads"].values():
            assert row["outcomes"]["done"] == row["first_audio_ms"]["num"] > 0
        log = (tmp_path / "logs" / f"{name}.log").read_text()
        assert (upstream.GROWING in log) is (name == "upstream-generator")
        assert f"{upstream.STEPS} 2" in log  # those that model.json asks for


def test_upstream_makes_the_voice_that_it_has_not(tmp_path: Path) -> None:
    path = upstream.packages(tmp_path / "upstream")
    source = standin.model(tmp_path / "source", voice="man")
    flags = ["--upstream", str(path), "--peer-model", str(source), "--json", str(tmp_path / "peers.json")]
    with deadline():
        peers.main(
            [*flags, "--logs", str(tmp_path), "--duration-s", "0.1", "--loads", "closed:1", "--servers", "upstream"]
        )
    assert f"{upstream.CLONED} Its words. reference.wav" in (tmp_path / "upstream.log").read_text()
    (row,) = json.loads((tmp_path / "peers.json").read_text())["servers"]["upstream"]["loads"].values()
    assert row["outcomes"]["done"] >= 1


def test_fixes_are_in_front_of_the_packages_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixes = tmp_path / "fixes"
    fixes.mkdir()
    (fixes / "sitecustomize.py").write_text("import sys; print('mended', file=sys.stderr)\n")
    chosen = ["--fixes", str(fixes), "--fix", "no NaN in its logits", "--servers", "vllm-omni-fixed"]
    report = run(tmp_path, "--loads", "closed:1", *chosen)
    assert "mended" in (tmp_path / "logs" / "vllm-omni-fixed.log").read_text()
    shown = capsys.readouterr().out
    settings = report["servers"]["vllm-omni-fixed"]["settings"]
    assert [stage.get("dtype") for stage in settings["deploy"]["stages"]] == [None, None]
    assert "| the peer | vllm-omni-fixed has what its release lacks: no NaN in its logits |" in shown


def test_a_peer_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    arguments(tmp_path)
    (tmp_path / "packages" / "vllm_omni" / "entrypoints" / "cli" / "main.py").write_text("raise SystemExit('no GPU')\n")
    failed = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")["servers"]["vllm-omni"]["failed"]
    assert "did not start (status 1)" in failed
    assert "no GPU" in failed


def test_a_peer_that_is_never_ready_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(standin.FAULT, "is never ready")
    monkeypatch.setattr(vllm_omni, "_START_LIMIT_S", 3.0)
    failed = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")["servers"]["vllm-omni"]["failed"]
    assert failed.startswith("the server was not ready after 3 s")
    assert "deploy stages" in failed, "its log"
    assert "/health: HTTP Error 503" in failed


def test_a_port_that_another_has_is_told_in_the_peers_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:  # takes connections, and never answers
        monkeypatch.setattr("voicegate.bench.servers.free_port", lambda: other.getsockname()[1])
        monkeypatch.setattr(vllm_omni, "_HEALTH_S", 0.2)
        failed = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")["servers"]["vllm-omni"]["failed"]
    assert "did not start" in failed
    assert "address already in use" in failed


def test_a_peer_whose_answer_to_a_voice_is_no_json_leaves_the_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(standin.FAULT, "takes no voice")
    servers = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni", "voicegate")["servers"]
    assert "took no voice" in servers["vllm-omni"]["failed"]
    assert servers["voicegate"]["loads"]["closed:1:whole"]["outcomes"]["done"]


def test_a_peer_that_refuses_sockets_is_told_with_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(standin.FAULT, "refuses sockets")
    failed = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")["servers"]["vllm-omni"]["failed"]
    assert "500" in failed


def test_a_peer_that_dies_in_the_middle_of_a_load_keeps_what_was_heard_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(standin.FAULT, "dies in a text")
    servers = run(tmp_path, "--loads", "closed:1", "closed:2", "closed:3", "--servers", "vllm-omni")["servers"]
    first, second, third = servers["vllm-omni"]["loads"].values()
    assert first["outcomes"] == {"done": 4, "cancelled": 0, "refused": 0, "failed": 2, "cut_off": 0}
    assert first["first_audio_ms"]["num"] == 4
    assert "cannot connect" in second["failed"]
    assert third == {"failed": "left out after closed:2:whole"}
    shown = capsys.readouterr().out
    assert "2 failed" in shown
    assert "| closed:3:whole | vllm-omni | left out after closed:2:whole |" in shown


def test_a_text_that_failed_is_not_the_end_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer tells of an error, and then that the text has ended."""
    monkeypatch.setenv(standin.FAULT, "fails every second text")
    (row,) = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")["servers"]["vllm-omni"]["loads"].values()
    assert row["messages"] == ["Generation failed: its engine"]
    assert abs(row["outcomes"]["done"] - row["outcomes"]["failed"]) <= 1
    assert row["first_audio_ms"]["num"] == row["outcomes"]["done"] > 0


def test_audio_counts_by_the_rate_that_a_peer_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds_a_letter() -> float:
        (row,) = run(tmp_path, "--loads", "closed:1:whole", "--servers", "vllm-omni")["servers"]["vllm-omni"][
            "loads"
        ].values()
        (tmp_path / "peers.json").unlink()
        turn_s: float = row["audio_s"] / row["outcomes"]["done"]
        return turn_s

    usual_s = seconds_a_letter()
    monkeypatch.setenv(standin.FAULT, "has 48 kHz")
    assert seconds_a_letter() == pytest.approx(usual_s, rel=0.5)


@pytest.mark.parametrize(
    ("flag", "name", "told"),
    [
        ("--packages", "empty", r"empty has no vLLM-Omni .*vllm_omni/deploy/cosyvoice3\.yaml.*pip install --target"),
        ("--packages", "broken", "broken has no vLLM-Omni"),
        ("--upstream", "empty", r"no cosyvoice/cli/cosyvoice\.py in .*empty"),
        ("--peer-model", "empty", r"empty is no peer's model \(reference\.json: .*bench\.peers\.generated"),
        ("--peer-model", "spoken", r"spoken has no recording"),
        ("--model", "empty", r"empty is not a voicegate model directory"),
        ("--model", "tiny-without-voices", r"has no voice 'man'"),
        ("--json", "empty", "empty is no result of bench.peers"),
        ("--json", "half.json/below.json", r"below\.json cannot be written"),
        ("--json", "half.json", r"half\.json is no result of bench.peers"),
        ("--json", "other.json", r"other\.json is no result of bench.peers"),
        ("--rounds", "0", "0 is not at least 1"),
        ("--duration-s", "nan", "nan is not at least"),
        ("--loads", "closed:x", "'closed:x' is no scenario"),
        ("--servers", "vllm", "no server vllm; there are vllm-omni, voicegate, transformers"),
        ("--fix", "no NaN", "--fixes and --fix go together"),
    ],
)
def test_what_is_wrong_is_told_before_a_server_is_started(
    flag: str, name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = arguments(tmp_path)
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken" / "vllm_omni" / "deploy" / "cosyvoice3.yaml"
    broken.parent.mkdir(parents=True)
    broken.write_text("stages: [")
    standin.model(tmp_path / "spoken", voice="man")
    (tmp_path / "spoken" / "reference.wav").unlink()
    (tmp_path / "tiny-without-voices").mkdir()
    shutil.copy(TINY_MODEL_DIR / "model.json", tmp_path / "tiny-without-voices")
    (tmp_path / "half.json").write_text('{"conditions": {')
    (tmp_path / "other.json").write_text("[]")
    value = str(tmp_path / name) if flag in ("--packages", "--upstream", "--peer-model", "--model", "--json") else name
    with pytest.raises(SystemExit, match="2"):
        peers.main([*flags, flag, value])
    assert re.search(told, capsys.readouterr().err.replace("\n", " "))
    assert not (tmp_path / "logs").exists()


def test_a_file_of_other_packages_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")
    (info,) = (tmp_path / "packages").glob("vllm_omni-*/METADATA")
    info.write_text(info.read_text().replace("0.26.0", "0.30.0"))
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")
    assert "has vllm-omni with other versions: name another --json" in capsys.readouterr().err


def pids_of(session: int) -> set[int]:
    """Processes that are in it, but for those that have ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, _, its_session, *_ = path.read_text().rpartition(")")[2].split()
            if state != "Z" and int(its_session) == session:
                found.add(int(path.parent.name))
    return found


COMMAND = "import sys; from voicegate.bench.peers import __main__ as peers; peers._WARM_S = 0.2; "
COMMAND += "sys.exit(peers.command())"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_keeps_its_loads_and_leaves_no_server(number: signal.Signals, tmp_path: Path) -> None:
    """Ended as a terminal does it, all processes of its group. Servers are in sessions of their own."""
    flags = [*arguments(tmp_path), "--loads", "closed:1", "--rounds", "500", "--servers", "vllm-omni"]
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", COMMAND, *flags, "--duration-s", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process, deadline():
        assert process.stdout is not None
        assert any(line.startswith("closed:1:whole ") for line in process.stdout)
        (server,) = [pid for pid in children(process.pid) if "vllm_omni" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert len(pids_of(server)) == 2, "its engine is a process of its own"
        os.killpg(process.pid, number)
        shown, told = process.communicate()
        while pids_of(server):
            time.sleep(0.01)
    rows = json.loads((tmp_path / "peers.json").read_text())["servers"]["vllm-omni"]["loads"]
    assert rows["closed:1:whole"]["first_audio_ms"]
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        assert "| closed:1:whole | vllm-omni |" in shown
        assert told.startswith("interrupted; ")
        assert "Traceback" not in told
