"""`make`'s set-up and its messages, with stand-ins for the programs that it would run."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support.dockerfile import ROOT
from tests.support.programs import required
from tests.unit.deploy.test_container import pins, without_nvidias

# In place of the environment's Python: says what torch it would take, and keeps what it is asked for otherwise.
PYTHON = """#!/bin/sh
case "$*" in
*--dry-run*) echo "$TORCH" ;;
*) echo "$@" > "$KEPT/asked" && cp "$6" "$KEPT/constraints" ;;
esac
"""

# Another: its pip does in turn what it is given to do, `fail` or `work`, and leaves something behind either way.
PIP = """#!/bin/sh
case "$*" in *--dry-run*) exit ;; esac
IFS= read -r now < "$KEPT/turns"
sed -i 1d "$KEPT/turns"
while [ $# != 0 ] && [ "$1" != --target ]; do shift; done
[ $# = 0 ] || mkdir -p "$2/$now"
[ "$now" = work ]
"""

# A Python that makes no environment.
VENV = f"""#!/bin/sh
case "$*" in
*find_library*) exit 0 ;;
*"import ensurepip") exit "$LACKS_ENSUREPIP" ;;
"-m venv "*) mkdir "$3" && echo "no space left on device" >&2 && exit 1 ;;
esac
exec '{sys.executable}' "$@"
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def told(command: list[str | Path], **variables: str) -> "subprocess.CompletedProcess[str]":
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PIP_"))}
    return subprocess.run(command, cwd=ROOT, env=ours | variables, capture_output=True, text=True, check=False)


@pytest.fixture(params=["Would install torch-2.13.0+cpu", "Would install torch-2.13.0", "no network"])
def torch(request: pytest.FixtureRequest) -> str:
    line: str = request.param
    return line


def test_a_torch_for_cuda_has_the_triton_that_goes_with_it(torch: str, tmp_path: Path) -> None:
    program(tmp_path / "venv/bin/python", PYTHON)
    done = told(["sh", "deploy/setup_packages.sh", tmp_path / "venv"], TORCH=torch, KEPT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("setup: installing Python packages: server,dev ")
    assert "-e models -e .[server,dev]" in (tmp_path / "asked").read_text()
    wanted = pins(ROOT / "constraints.txt")
    if torch == "Would install torch-2.13.0" and sys.platform == "linux":
        wanted = without_nvidias(wanted) | pins(ROOT / "deploy/gpu-versions.txt")
    assert pins(tmp_path / "constraints") == wanted


@pytest.mark.parametrize(("turns", "status"), [(["fail", "work"], 0), (["fail", "fail"], 1)])
def test_one_download_that_breaks_off_is_not_the_end(turns: list[str], status: int, tmp_path: Path) -> None:
    program(tmp_path / "venv/bin/python", PIP)
    (tmp_path / "turns").write_text("\n".join(turns))
    done = told(["sh", "deploy/setup_packages.sh", tmp_path / "venv"], KEPT=str(tmp_path))
    assert done.returncode == status, done.stderr
    assert "once more" in done.stdout
    assert ("STOP: pip could not install" in done.stderr) is bool(status)


@pytest.mark.parametrize(
    ("target", "extras"),
    [("demo", ["server"]), ("serve", ["server"]), ("doctor", ["server"]), ("lint", ["server,dev"])],
)
def test_to_hear_it_needs_no_tools_of_developers(target: str, extras: list[str], tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    for name in ("python", "voicegate", "ruff"):
        program(venv / f"bin/{name}", '#!/bin/sh\ncase "$*" in *--quiet*) echo "$@" >> "$KEPT/asked" ;; esac\n')
    (venv / ".base").touch()
    done = told(["make", f"VENV={venv}", target], KEPT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.rpartition(" -e .")[2] for line in asked] == [f"[{each}]" for each in extras]
    again = told(["make", f"VENV={venv}", target], KEPT=str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "asked").read_text().splitlines() == asked, "once"


def test_half_a_folder_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    program(venv / "bin/python", PIP)
    for marker in (".base", ".ready", ".dev"):
        (venv / marker).touch()
    (tmp_path / "turns").write_text("fail\nfail\nfail\nwork\n")
    command: list[str | Path] = ["make", f"VENV={venv}", venv / "pipecat"]
    assert told(command, KEPT=str(tmp_path)).returncode != 0
    assert not (venv / "pipecat").exists()
    assert told(command, KEPT=str(tmp_path)).returncode == 0
    assert [path.name for path in (venv / "pipecat").iterdir()] == ["work"]
    assert told(command, KEPT=str(tmp_path)).returncode == 0, "nothing is left to do"


def test_settings_for_installing_elsewhere_do_not_count(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    program(venv / "bin/python", '#!/bin/sh\necho "user: $PIP_USER"\n')
    (venv / ".base").touch()
    assert "user: 0" in told(["make", f"VENV={venv}", venv / ".ready"], PIP_USER="1").stdout


@pytest.mark.parametrize(
    ("lacks", "remedy"), [("1", "apt-get install -y python{}.{}-venv"), ("0", "the message above says why")]
)
def test_an_environment_that_cannot_be_made(lacks: str, remedy: str, tmp_path: Path) -> None:
    """The package that may lack is the one of this Python; a full disk has another remedy."""
    python = program(tmp_path / "python", VENV)
    done = told(["sh", "deploy/setup.sh", tmp_path / "venv"], PYTHON=str(python), LACKS_ENSUREPIP=lacks)
    assert done.returncode == 1, done.stderr
    message, stop = done.stderr.splitlines()
    assert message == "no space left on device"
    assert stop.endswith(remedy.format(*sys.version_info))
    assert not (tmp_path / "venv").exists()


def test_ci_that_may_become_root_has_the_programs(tmp_path: Path) -> None:
    """As GitHub's machines are: nobody's, and without a password."""
    for name, text in (("id", "echo 1001"), ("sudo", 'printf "%s\\n" "$*" >> "$KEPT/asked"'), ("apt-get", "exit 9")):
        program(tmp_path / name, f"#!/bin/sh\n{text}\n")
    done = told(["/bin/sh", "deploy/setup_programs.sh"], PATH=str(tmp_path), KEPT=str(tmp_path), CI="true")
    assert "could not" not in done.stdout
    try_it, update, install = (tmp_path / "asked").read_text().splitlines()
    assert (try_it, update) == ("-n true", "-n apt-get update -qq")
    assert install.startswith("-n env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y")
    assert install.endswith(" g++ npm")


def test_ci_has_the_python_that_it_names() -> None:
    """Its machines have a python3.12 of their own, which deploy/setup.sh would take before what it asks for."""
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]
    assert "3.11" in job["strategy"]["matrix"]["python"]
    assert job["steps"][-1]["run"] == "make test PYTHON=python"


def test_a_second_make_waits_for_what_the_first_has_half_made(tmp_path: Path) -> None:
    required("flock")
    venv = tmp_path / "venv"
    inner = f'[ "$*" != "-m pip --version" ] || [ -e {tmp_path}/whole ]'
    making = f"mkdir -p {venv}/bin && mv {tmp_path}/inner {venv}/bin/python && sleep 1 && touch {tmp_path}/whole"
    program(tmp_path / "inner", f"#!/bin/sh\n{inner}\n")
    program(tmp_path / "python", f'#!/bin/sh\n[ "$2" != venv ] || {{ {making}; }}\n')
    command = ["sh", "deploy/setup.sh", str(venv)]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHON": str(tmp_path / "python")}) as first:
        while first.poll() is None and not (venv / "bin/python").exists():
            time.sleep(0.01)
        second = told([*command], PYTHON=str(tmp_path / "python"))
    assert (first.returncode, second.returncode) == (0, 0), second.stderr


# As PIP, in place of npm: what it is told to leave behind stands in the folder that it is given.
NPM = """#!/bin/sh
IFS= read -r now < "$KEPT/turns"
sed -i 1d "$KEPT/turns"
while [ "$1" != --prefix ]; do shift; done
mkdir "$2/node_modules" "$2/node_modules/$now"
[ "$now" = work ]
"""


def test_packages_for_node_are_there_whole_or_not_at_all(tmp_path: Path) -> None:
    program(tmp_path / "bin/npm", NPM)
    variables = {"KEPT": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command: list[str | Path] = ["sh", "deploy/setup_node.sh", tmp_path / "venv", "tests/integration/javascript"]
    (tmp_path / "turns").write_text("fail\nfail\nfail\nwork\n")
    first = told(command, **variables)
    assert (first.returncode, "could not install" in first.stdout) == (0, True), "tests say so, where they are skipped"
    assert not (tmp_path / "venv/javascript").exists()
    assert told(command, **variables).stdout == "", "one download that breaks off is not the end"
    assert [path.name for path in (tmp_path / "venv/javascript/node_modules").iterdir()] == ["work"]
    assert told(command, **variables).returncode == 0, "nothing is left to do"
