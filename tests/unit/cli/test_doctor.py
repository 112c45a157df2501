"""Each check of `voicegate doctor`, good and bad; fail alone decides the exit status."""

import re
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.golden import TINY_MODEL_DIR, TINY_VOICES
from tests.support.ports import reserved_port
from tests.support.second_family import write_second_family
from voicegate.clients.python.errors import MissingDependency
from voicegate.engine.backends.tensorrt.addition import Tensorrt
from voicegate.engine.llm.cpu.library import NoLibrary
from voicegate.gateway.cli import doctor
from voicegate.gateway.cli.checks import machine
from voicegate.gateway.cli.checks.engine import (
    check_engines,
    check_llm_addition,
    check_llm_kernel,
    check_torch,
)
from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.cli.checks.machine import check_open_files, check_port, check_python
from voicegate.gateway.cli.checks.model import check_model
from voicegate.gateway.cli.main import run
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.entrance.descriptors import FileLimits


@pytest.fixture
def free_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10), Level.FAIL), ((3, 11), Level.OK), ((3, 12), Level.OK), ((3, 13), Level.FAIL)]
)
def test_python(version: tuple[int, int], level: Level) -> None:
    assert check_python(version).level is level


def test_model_in_order(tmp_path: Path) -> None:
    findings = list(check_model(TINY_MODEL_DIR))
    assert {finding.level for finding in findings} == {Level.OK}
    assert [finding.subject for finding in findings] == [
        "model",
        "tokenizer",
        "llm",
        "flow",
        "vocoder",
        *["voice"] * len(TINY_VOICES),
    ]
    (finding,) = check_model(tmp_path)
    assert (finding.level, "choose another with --model-dir" in finding.text) == (Level.FAIL, True)


def test_every_missing_file_is_told_at_once(tmp_path: Path) -> None:
    shutil.copy(TINY_MODEL_DIR / "model.json", tmp_path)
    failed = [finding.subject for finding in check_model(tmp_path) if finding.level is Level.FAIL]
    assert failed == ["tokenizer", "llm", "flow", "vocoder", "voices"]
    of_another_llm = check_model(tmp_path, has_own_llm=False)
    assert "llm" not in {finding.subject for finding in of_another_llm}


def test_without_torch_the_files_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "voicegate.engine.load.family", None)
    assert [finding.level for finding in check_model(TINY_MODEL_DIR)] == [Level.OK, Level.WARN]


def test_the_users_own_voices_count_too_and_pairs_that_will_become_voices(tmp_path: Path) -> None:
    for name in ("model.json", "speech_tokenizer.safetensors"):
        shutil.copy(TINY_MODEL_DIR / name, tmp_path)
    (tmp_path / "voices").mkdir()
    shutil.copy(TINY_MODEL_DIR / "voices" / "woman.safetensors", tmp_path / "voices")
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(TINY_MODEL_DIR / "voices" / "woman.safetensors", own)
    shutil.copy(TINY_MODEL_DIR / "voices" / "woman_prompt.wav", own / "anna.wav")
    (own / "anna.txt").write_text("what she says")
    voices = [finding for finding in check_model(tmp_path, own) if finding.subject.startswith("voice")]
    assert [finding.level for finding in voices] == [Level.OK, Level.OK]
    assert voices[0].text.startswith("woman: ")
    assert voices[1].text.startswith("anna: is made of ")
    missing = [finding for finding in check_model(tmp_path, tmp_path / "nowhere") if finding.subject == "voices"]
    assert "is no directory" in missing[0].text


def test_port(free_port: int) -> None:
    assert check_port("127.0.0.1", free_port).level is Level.OK
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        finding = check_port("127.0.0.1", taken.getsockname()[1])
    assert (finding.level, "choose another with --port" in finding.text) == (Level.FAIL, True)
    assert check_port("192.0.2.1", 0).level is Level.FAIL


def test_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, cuda = check_torch(GatewayConfig(threads=1))
    assert (torch.level, torch.subject, cuda.subject) == (Level.OK, "torch", "cuda")
    (torch, _) = check_torch(GatewayConfig(threads=10_000))
    assert (torch.level, "fewer are faster" in torch.text) == (Level.WARN, True)
    monkeypatch.setitem(sys.modules, "torch", None)
    (torch,) = check_torch(GatewayConfig())
    assert (torch.level, "pip install" in torch.text) == (Level.FAIL, True)


def test_whether_c_makes_tokens_on_a_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = GatewayConfig(device="cpu")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr("voicegate.engine.llm.cpu.library.load_library", lambda: None)
    assert list(check_llm_kernel(config)) == [Finding(Level.OK, "llm kernel", "a token is one call of C, with avx2")]

    def fail() -> None:
        raise NoLibrary("no C compiler: 'cc' cannot be run")

    monkeypatch.setattr("voicegate.engine.llm.cpu.library.load_library", fail)
    (found,) = check_llm_kernel(config)
    assert (found.level, found.text.startswith("no C compiler: "), "gcc" in found.text) == (Level.WARN, True, True)
    assert list(check_llm_kernel(replace(config, model_dir=tmp_path))) == []
    with monkeypatch.context() as patch:
        patch.setattr("voicegate.engine.llm.cpu.decoder.fits", lambda *_: False)
        assert list(check_llm_kernel(config)) == []
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: True)
        patch.setattr("torch.cuda.current_device", lambda: 0)
        assert list(check_llm_kernel(GatewayConfig())) == []
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    assert list(check_llm_kernel(config)) == []


APART = GatewayConfig(llm_device="cuda:0", token2wav_devices="cuda:1", threads=1)


def test_cuda_that_was_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for config in (GatewayConfig(device="cuda", threads=1), GatewayConfig(gpus="0,1", threads=1), APART):
        assert [finding.level for finding in check_torch(config)] == [Level.OK, Level.FAIL]


def test_tensorrt_llm_is_looked_at_where_it_is_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = GatewayConfig(llm_backend="tensorrt-llm")
    assert check_llm_addition(config) == Finding(Level.FAIL, "tensorrt", "it needs a checkpoint: --merged-hf-dir")
    config = replace(config, merged_hf_dir=tmp_path)
    found = check_llm_addition(replace(config, device="cpu"))
    assert (found.level, "needs a GPU" in found.text) == (Level.FAIL, True)
    monkeypatch.setattr("voicegate.engine.backends.tensorrt_llm.addition.check_requirements", lambda _: "1.2.1")
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: True)
        patch.setattr("torch.cuda.current_device", lambda: 0)
        found = check_llm_addition(config)
        assert (found.level, "config.json cannot be read" in found.text) == (Level.FAIL, True)
        patch.setattr("voicegate.engine.backends.legged.addition.read_vocabulary", lambda *_: None)
        assert check_llm_addition(config) == Finding(Level.OK, "tensorrt", f"1.2.1, {tmp_path}")
    assert "tensorrt" not in {finding.subject for finding in doctor.examine(GatewayConfig())}
    assert "tensorrt" in {finding.subject for finding in doctor.examine(config)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "float32"}, "the merged checkpoint is bfloat16: precision float32 needs another LLM backend"),
        ({"llm_device": "cuda:1", "token2wav_devices": "cuda:0"}, "TensorRT-LLM runs on the first GPU, not on cuda:1"),
        ({"model_dir": None}, "serves CosyVoice3 with its own sampling alone"),
    ],
)
def test_what_a_start_with_tensorrt_llm_would_refuse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    monkeypatch.setattr("voicegate.engine.backends.tensorrt_llm.addition.check_requirements", lambda _: "1.2.1")
    monkeypatch.setattr("voicegate.engine.backends.legged.addition.read_vocabulary", lambda *_: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    if "model_dir" in changes:
        changes = {"model_dir": write_second_family(tmp_path / "model")}
    config = replace(GatewayConfig(llm_backend="tensorrt-llm", merged_hf_dir=tmp_path), **changes)  # type: ignore[arg-type]
    found = check_llm_addition(config)
    assert (found.level, message in found.text) == (Level.FAIL, True), found


@pytest.mark.parametrize("backend", ["tensorrt-llm", "vllm"])
def test_an_llm_of_others_is_not_looked_for_on_a_gpu_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("importlib.metadata.version", lambda _: {"vllm": "0.26.0", "tensorrt-llm": "1.2.1"}[backend])
    monkeypatch.setattr("voicegate.engine.backends.legged.addition.read_vocabulary", lambda *_: None)
    found = check_llm_addition(replace(APART, llm_backend=backend, merged_hf_dir=tmp_path))
    assert (found.level, found.text) == (Level.FAIL, "there is no cuda:0: torch sees 0 GPUs, counted from 0")


@pytest.mark.parametrize("part", ["vocoder", "flow"])
def test_tensorrts_engines_are_looked_at_where_they_are_chosen_or_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str
) -> None:
    config = GatewayConfig(tensorrt_dir=tmp_path / "engines")
    assert not list(check_engines(config)), "nobody asked for them, and none are there"
    (found,) = check_engines(replace(config, **{f"{part}_backend": "tensorrt"}, device="cpu"))
    assert (found.level, found.subject, "need a GPU" in found.text) == (Level.FAIL, f"{part} engines", True)
    (tmp_path / "engines").mkdir()
    levels = [(found.subject, found.level) for found in check_engines(replace(config, device="cpu"))]
    assert levels == [("vocoder engines", Level.WARN), ("flow engines", Level.WARN)], "auto goes on without them"
    alone = replace(config, vocoder_backend="cuda", flow_backend="cuda")
    assert not list(check_engines(alone))
    assert not list(check_engines(replace(config, model_dir=tmp_path))), "told where the model is checked"
    monkeypatch.setattr(Tensorrt, "usable", lambda _, part, *__: f"6 engines of TensorRT 10.14 in d of the {part}")
    (found,) = check_engines(replace(alone, **{f"{part}_backend": "tensorrt"}))
    assert found == Finding(Level.OK, f"{part} engines", f"6 engines of TensorRT 10.14 in d of the {part}: are used")
    (found,) = check_engines(replace(alone, **{f"{part}_backend": "auto"}))
    assert "measured against our kernels at the start" in found.text
    assert f"{part} engines" in {finding.subject for finding in doctor.examine(config)}
    assert f"{part} engines" not in {finding.subject for finding in doctor.examine(GatewayConfig())}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "a card")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda number: ((79 - number) << 30, 80 << 30))
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.6.0"))
    monkeypatch.setenv("CC", "cc")
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))


@pytest.mark.usefixtures("card")
def test_a_card_has_memory_and_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    _, cuda, triton = check_torch(GatewayConfig(threads=1))
    assert cuda == Finding(Level.OK, "cuda", "a card, 79.0 of 80.0 GiB free")
    assert triton == Finding(Level.OK, "triton", "3.6.0")
    monkeypatch.setitem(sys.modules, "triton", None)
    assert list(check_torch(GatewayConfig(device="cpu", threads=1)))[1:] == [
        Finding(Level.OK, "cuda", "a card, not used: device is cpu")
    ]
    _, _, triton = check_torch(GatewayConfig(threads=1))
    assert (triton.level, "`pip install triton`" in triton.text) == (Level.FAIL, True)


@pytest.mark.usefixtures("card")
def test_each_card_of_several_is_looked_at() -> None:
    _, second, third, _ = check_torch(GatewayConfig(gpus="2,1,cpu", threads=1))
    assert second == Finding(Level.OK, "cuda", "GPU 1: a card, 78.0 of 80.0 GiB free")
    assert third == Finding(Level.FAIL, "cuda", "gpus names GPU 2, and torch sees 2, counted from 0")
    assert list(check_torch(GatewayConfig(gpus="cpu,cpu", threads=1)))[1:] == [
        Finding(Level.OK, "cuda", "a card, not used: gpus is cpu")
    ]


@pytest.mark.usefixtures("card")
def test_each_device_of_a_disaggregated_engine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = GatewayConfig(llm_device="cuda:0", token2wav_devices="cuda:1,cuda:2", threads=1)
    _, first, second, third, _ = check_torch(apart)
    assert first == Finding(Level.OK, "cuda", "GPU 0: a card, 79.0 of 80.0 GiB free")
    assert second == Finding(Level.OK, "cuda", "GPU 1: a card, 78.0 of 80.0 GiB free")
    assert (third.level, "there is no GPU 2, and torch sees 2" in third.text) == (Level.FAIL, True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (2 << 30, 80 << 30))
    _, first, second, _ = check_torch(replace(apart, token2wav_devices="cuda:1", kv_dtype="bfloat16"))
    _, together, _ = check_torch(GatewayConfig(device="cuda", kv_dtype="bfloat16", threads=1))
    of_llm, of_token2wav, of_both = (
        float(found.text.partition("at least ")[2].split()[0]) for found in (first, second, together)
    )
    assert max(of_llm, of_token2wav) < of_both, "each is asked for its own models"
    on_cpu = replace(apart, llm_device="cpu", token2wav_devices="cpu")
    assert list(check_torch(on_cpu))[1:] == [Finding(Level.OK, "cuda", "a card, not used: llm_device is cpu")]
    _, found = check_torch(replace(apart, token2wav_devices=""))
    assert (found.level, "they go together" in found.text) == (Level.FAIL, True)


@pytest.mark.usefixtures("card")
def test_a_card_that_is_full_is_told_with_what_is_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (2 << 30, 80 << 30))
    _, cuda, _ = check_torch(GatewayConfig(threads=1))
    assert cuda.level is Level.WARN
    assert re.fullmatch(r"a card, 2\.0 of 80\.0 GiB free, at least \d\.\d wanted: end what .*", cuda.text)
    _, cuda, _ = check_torch(GatewayConfig(model_dir=tmp_path, threads=1))
    assert cuda.level is Level.OK  # a model that is not there wants nothing


@pytest.mark.usefixtures("card")
def test_triton_needs_a_compiler_and_pythons_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bare Ubuntu has neither, and a start would break off with a line of gcc's."""
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "none"))
    _, _, triton = check_torch(GatewayConfig(threads=1))
    assert (triton.level, "`apt-get install python3-dev`" in triton.text) == (Level.FAIL, True)
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda _: None)
    _, _, triton = check_torch(GatewayConfig(threads=1))
    assert (triton.level, "`apt-get install gcc`" in triton.text) == (Level.FAIL, True)


@pytest.mark.usefixtures("card")
def test_a_card_that_cannot_be_opened_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has it to itself, or its driver is in trouble."""

    def busy(*_: object) -> None:
        raise RuntimeError("CUDA error: device(s) is/are busy or unavailable\nFor debugging consider ...")

    for name in ("mem_get_info", "get_device_name", "current_device"):
        monkeypatch.setattr(f"torch.cuda.{name}", busy)
    _, cuda, triton = check_torch(GatewayConfig(device="cuda", threads=1))
    assert (cuda.level, triton.level) == (Level.FAIL, Level.OK)
    assert cuda.text.startswith("GPU 0 cannot be opened (CUDA error: device(s) is/are busy or unavailable): nvidia-smi")
    assert [found.level for found in check_torch(GatewayConfig(gpus="0,1", threads=1))][1:3] == [Level.FAIL, Level.FAIL]
    _, cuda = check_torch(GatewayConfig(device="cpu", threads=1))
    assert cuda == Finding(Level.OK, "cuda", "a GPU that cannot be opened, not used: device is cpu")
    monkeypatch.setattr(Tensorrt, "usable", busy)
    (engines,) = check_engines(GatewayConfig(model_dir=TINY_MODEL_DIR, vocoder_backend="tensorrt", device="cpu"))
    assert (engines.level, engines.text) == (Level.FAIL, "CUDA error: device(s) is/are busy or unavailable")


def test_what_is_missing_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise MissingDependency("install it")

    monkeypatch.setattr(machine, "check_opus", missing)
    monkeypatch.setattr(machine, "find_sound_device", missing)
    assert machine.check_libopus() == Finding(Level.FAIL, "libopus", "install it")
    assert machine.check_sound().level is Level.WARN
    monkeypatch.setattr(machine, "find_sound_device", lambda: "speakers")
    assert machine.check_sound() == Finding(Level.OK, "sound", "speakers")


@pytest.mark.parametrize(("level", "status"), [(Level.OK, 0), (Level.WARN, 0), (Level.FAIL, 1)])
def test_exit_status_and_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: Level, status: int
) -> None:
    findings = [Finding(Level.OK, "python", "3.11"), Finding(level, "port", "what to do"), Finding(Level.OK, "x", "y")]
    monkeypatch.setattr(doctor, "examine", lambda _config: iter(findings))
    assert run(["doctor"]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{level.value:<5} port        what to do"


def test_the_order_is_the_order_of_repair(monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    monkeypatch.setattr(machine, "find_sound_device", lambda: "speakers")
    subjects = [finding.subject for finding in doctor.examine(GatewayConfig(port=free_port))]
    assert [each for each in subjects if each != "llm kernel"][:6] == [
        "python",
        "libopus",
        "torch",
        "cuda",
        "cores",
        "model",
    ]
    assert subjects[-3:] == ["port", "open files", "sound"]


@pytest.mark.parametrize(
    ("soft", "hard", "level", "part"),
    [
        (1024, None, Level.OK, "at most 1344; room for 1024 sockets"),
        (None, None, Level.OK, "no limit; room for 1024"),
        (1024, 1024, Level.WARN, "room for 704 of 1024 sockets: raise the hard limit"),
        (256, 256, Level.FAIL, "no room for any"),
    ],
)
def test_open_files(soft: int | None, hard: int | None, level: Level, part: str) -> None:
    finding = check_open_files(1024, FileLimits(soft, hard))
    assert finding.level is level
    assert part in finding.text
