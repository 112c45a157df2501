"""The command line: one line per mistake, the right exit status, and no torch where none is needed."""

import re
import subprocess
import sys

import pytest

from voicegate import __version__
from voicegate.gateway.cli import main, serve, version
from voicegate.gateway.cli.terminal import CommandError
from voicegate.gateway.config import config_fields

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "--prot", "1"], "voicegate serve: --prot is unknown here; see voicegate serve --help"),
        (["voices", "extra"], "voicegate voices: argument action: invalid choice: 'extra' (choose from"),
        (["voices", "show", "x", "y"], "voicegate voices: y is unknown here; see voicegate voices --help"),
        (["say", "x", "--speed", "fast"], "voicegate say: argument --speed: invalid float value: 'fast'; see"),
        (["say", "x", "--speed", "nan"], "voicegate say: argument --speed: nan is not 0.5 to 2; see"),
        (["say", "x", "--seed", "-1"], "voicegate say: argument --seed: -1 is not 0 to 9223372036854775807; see"),
        (["bench", "--max-streams", "0"], "voicegate bench: argument --max-streams: 0 is not at least 1; see"),
        (["bench", "--duration-s", "inf"], "voicegate bench: argument --duration-s: inf is not at least 0.1; see"),
        (["bench", "--c100", "99.5"], "voicegate bench: argument --c100: 99.5 is not 0 to 1; see"),
        (["sing"], "voicegate: argument command: invalid choice: 'sing' (choose from"),
    ],
)
def test_usage_errors(capsys: Captured, arguments: list[str], line: str) -> None:
    with pytest.raises(SystemExit, match=str(main.EXIT_USAGE)):
        sys.exit(main.run(arguments))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(line)
    assert shown.err.count("\n") == 1


def test_the_version_is_an_option_too(capsys: Captured) -> None:
    with pytest.raises(SystemExit, match="0"):
        main.run(["--version"])
    assert capsys.readouterr().out == f"voicegate {__version__}\n"


def test_no_command_is_the_help(capsys: Captured) -> None:
    assert main.run([]) == main.EXIT_USAGE
    shown = capsys.readouterr().err
    assert all(name in shown for name in ("serve", "say", "voices", "version", "doctor"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["serve", "--port", "x"], "--port is 'x'; it must be a whole number"),
        (["serve", "--device", "tpu"], "--device is 'tpu'; it must be one of auto, cpu, cuda"),
        (["serve", "--port", "70000"], "port is 70000"),
        (["voices", "--model-dir", "/nowhere"], "/nowhere/model.json is missing"),
    ],
)
def test_bad_values_are_one_line(capsys: Captured, arguments: list[str], reason: str) -> None:
    assert main.run(arguments) == main.EXIT_FAILED
    shown = capsys.readouterr().err
    assert shown.startswith(f"voicegate: {reason}")
    assert shown.count("\n") == 1


def test_an_unknown_variable_is_named(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEGATE_PROT", "1")
    assert main.run(["voices"]) == main.EXIT_FAILED
    assert "VOICEGATE_PROT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"), [(CommandError("no"), 1), (KeyboardInterrupt(), 130)], ids=["failed", "interrupted"]
)
def test_status_of_a_command_that_stops(monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int) -> None:
    def stop(_version: str) -> None:
        raise error

    monkeypatch.setattr(version, "version_of", stop)
    assert main.run(["version"]) == status


def test_help_of_serve_has_every_setting_with_default_and_variable(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stop:
        main.run(["serve", "--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for setting in config_fields():
        if setting.is_secret:  # other users of the machine see flags
            assert f"{setting.flag} " not in shown
            assert f"{setting.env}: {setting.help}" in shown
        else:
            assert f"{setting.flag} " in shown
            assert f"; {setting.env})" in shown
    assert "(default: 8080; VOICEGATE_PORT)" in shown
    assert "(default: unset; VOICEGATE_THREADS)" in shown
    assert "(default: unset; VOICEGATE_ALLOWED_ORIGINS)" in shown


def test_help_of_serve_begins_with_what_people_need_first(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main.run(["serve", "--help"])
    shown = capsys.readouterr().out
    assert re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE) == ["options", *serve.FLAG_GROUPS]
    named = [name for names in serve.FLAG_GROUPS.values() for name in names.split()]
    assert sorted(named) == sorted(setting.name for setting in config_fields() if not setting.is_secret)
    assert len(serve.FLAG_GROUPS["first"].split()) == 10


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("ws://127.0.0.1:8080/v1/stream", "http://127.0.0.1:8080/"),
        ("wss://0.0.0.0:443/v1/stream", "https://localhost:443/"),
        ("ws://[::1]:8080/v1/stream", "http://[::1]:8080/"),
        ("ws://[::]:8080/v1/stream", "http://localhost:8080/"),
    ],
)
def test_the_pages_address_can_be_opened(url: str, page: str) -> None:
    assert serve.page_of(url) == page


def test_a_percent_sign_in_a_help_text_is_no_format() -> None:
    (setting, *_) = config_fields()
    assert "%%" not in serve._help(setting)


def test_version(capsys: Captured) -> None:
    assert main.run(["version"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["voicegate", "python", "torch", "libopus"]


def test_help_and_client_commands_import_neither_torch_nor_the_server() -> None:
    program = (
        "import sys; from voicegate.gateway.cli.main import run\n"
        "try: run(['--help'])\n"
        "except SystemExit: pass\n"
        "run(['version'])\n"
        "print([name for name in ('torch', 'uvloop', 'structlog', 'numpy') if name in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines()[-1] == "[]"
