"""bench.peers: a stand-in that speaks vLLM-Omni's documented protocol, beside a real `voicegate serve`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import upstream
from tests.support import vllm_omni as standin
from tests.support.golden import TINY_MODEL_DIR
from tests.support.quick_model import quick_model
from tests.unit.clients.deadline import deadline
from voicegate.bench.peers import __main__ as peers
from voicegate.bench.peers import embedded
from voicegate.clients.bench.usage import children


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_WARM_S", 0.2)
    monkeypatch.setenv("VOICEGATE_THREADS", "1")


def arguments(tmp_path: Path) -> list[str]:
    if not (tmp_path / "packages").exists():
        standin.packages(tmp_path / "packages")
        standin.model(tmp_path / "model", voice="slt")
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
        assert f"{upstream.STEPS} 6" in log  # those that model.json asks for


def test_upstream_makes_the_voice_that_it_has_not(tmp_path: Path) -> None:
    path = upstream.packages(tmp_path / "upstream")
    source = standin.model(tmp_path / "source", voice="slt")
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
    settings = report["servers"]["vllm-omni-fixed"]["settings"]
    assert [stage.get("dtype") for stage in settings["deploy"]["stages"]] == [None, None]
    assert "| the peer | vllm-omni-fixed has what its release lacks: no NaN in its logits |" in capsys.readouterr().out


def test_a_peer_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    standin.packages(tmp_path / "packages")
    standin.model(tmp_path / "model", voice="slt")
    (tmp_path / "packages" / "vllm_omni" / "entrypoints" / "cli" / "main.py").write_text("raise SystemExit('no GPU')\n")
    failed = run(tmp_path, "--loads", "closed:1", "--servers", "vllm-omni")["servers"]["vllm-omni"]["failed"]
    assert "did not start (status 1)" in failed
    assert "no GPU" in failed


def test_servers_end_with_a_run_that_is_ended(tmp_path: Path) -> None:
    flags = [*arguments(tmp_path), "--loads", "closed:1", "--servers", "vllm-omni", "--duration-s", "600"]
    command = [sys.executable, "-u", "-m", "voicegate.bench.peers", *flags]
    with deadline(), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.startswith("vllm-omni: ready") for line in process.stdout)
        (server,) = [pid for pid in children(process.pid) if "vllm_omni" in Path(f"/proc/{pid}/cmdline").read_text()]
        process.terminate()
        process.stdout.read()
    assert not Path(f"/proc/{server}").exists()
