"""The wheel without extras: a light client, which says what it lacks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import voicegate
from tests.packaging.environments import ROOT, Environment, plain_environment

_FOLDERS = ("gateway", "engine", "clients", "bench", "deploy", "models")
# By path: on the public index `voicegate` is another project's.
_SERVER_EXTRA = "`pip install ./models '.[server]'`"
TINY = ROOT / "models" / "tiny"


def test_the_installed_package_is_what_is_imported(client: Environment) -> None:
    shown = client.run("python", "-c", "import voicegate; print(voicegate.__file__)").stdout
    assert Path(shown.strip()) == client.packages / "voicegate" / "__init__.py"


def test_nothing_else_is_installed(client: Environment) -> None:
    assert {path.name for path in client.packages.iterdir() if not path.name.endswith(".dist-info")} == {
        "msgspec",
        "orjson",
        "voicegate",
        "websockets",
    }


def test_the_client_is_imported_from_the_package(client: Environment) -> None:
    program = (
        "import sys, voicegate\n"
        "assert not any(name.startswith('websockets') for name in sys.modules)\n"
        "from voicegate import connect, Gate, GateError, MissingDependency\n"
        "assert isinstance(connect('ws://127.0.0.1'), Gate) and issubclass(MissingDependency, GateError)\n"
        "assert 'connect' in dir(voicegate)\n"
        "voicegate.konnect\n"
    )
    ran = client.run("python", "-W", "error", "-c", program)
    assert ran.stderr.splitlines()[-1].startswith("AttributeError: module 'voicegate' has no attribute 'konnect'")


def test_types_are_seen_from_outside(client: Environment, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "from voicegate import Gate, connect\n"
        "gate: Gate = connect('ws://127.0.0.1', reconnect=False)\n"
        "reveal_type(connect)\n"
        "from voicegate import konnect\n"
        "connect(1)\n"
    )
    # pytest's own environment has mypy; the packages that it looks at are the client's.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(client.python), "user.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=plain_environment(),
    )
    lines = [line for line in checked.stdout.splitlines() if line.startswith("user.py")]
    assert "voicegate.clients.python.client.Gate" in lines[0]
    assert 'Module "voicegate" has no attribute "konnect"' in lines[1]
    assert "Argument 1" in lines[2]
    assert len(lines) == 3


def test_help_and_version(client: Environment) -> None:
    assert "serve" in client.run("voicegate", "--help").stdout
    assert "--model-dir" in client.run("voicegate", "serve", "--help").stdout
    shown = client.run("voicegate", "version").stdout.splitlines()
    assert [line.split(maxsplit=1)[0] for line in shown] == ["voicegate", "python", "torch", "libopus"]
    assert shown[2].endswith("not installed")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve",),
        ("convert", "from", "to"),
        ("voices",),
        ("voices", "add", "anna", "--wav", "anna.wav"),
        ("voices", "add", "anna", "--wav", str(TINY / "voices" / "woman_prompt.wav"), "--model-dir", str(TINY)),
        ("say", "Hello"),
        ("say", "Hello", "-o", "x.opus"),
    ],
    ids=" ".join,
)
def test_what_needs_the_server_says_so_in_one_line(client: Environment, arguments: tuple[str, ...]) -> None:
    ran = client.run("voicegate", *arguments, VOICEGATE_PORT="1")
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("voicegate: ")
    assert _SERVER_EXTRA in last
    assert "Traceback" not in ran.stderr


def test_the_bench_needs_the_client_alone(client: Environment, tmp_path: Path) -> None:
    assert "--max-streams" in client.run("voicegate", "bench", "--help").stdout
    ran = client.run("voicegate", "bench", "ws://127.0.0.1:1", "--scenarios", "closed:1", "-o", tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("voicegate: ws://127.0.0.1:1/v1/stream: cannot connect")
    assert "Traceback" not in ran.stderr


def test_doctor_says_what_to_install(client: Environment) -> None:
    ran = client.run("voicegate", "doctor", "--port", "0")
    assert ran.returncode == 1
    findings = {line.split()[1]: line for line in ran.stdout.splitlines()}
    for subject, remedy in (
        ("libopus", "`pip install opuslib-next`"),
        ("torch", _SERVER_EXTRA),
        ("model", _SERVER_EXTRA),
        ("sound", "`pip install sounddevice opuslib-next`"),
    ):
        assert findings[subject].startswith("warn" if subject == "sound" else "fail")
        assert remedy in findings[subject]


def test_nobody_is_told_to_install_by_name() -> None:
    """On the public index `voicegate` is another project's, and pip would put that in this one's place."""
    by_name = re.compile(r"pip install[^\n`]*[ '\"]voicegate[\['\"`]")
    files = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    files += [
        path
        for folder in _FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".sh", ".js")
    ]
    assert [path for path in files if by_name.search(path.read_text())] == []


def test_a_tree_that_is_not_installed_runs(tree: Path, dependencies: Environment) -> None:
    ran = dependencies.run("python", "-m", "voicegate", "version", cwd=tree)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0].split() == ["voicegate", voicegate.__version__]
