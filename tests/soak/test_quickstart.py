"""docs/quickstart-gpu.md, line by line, in a bare Ubuntu 24.04 with its own Python 3.12.

debootstrap makes it, and a chroot stands for the machine. Without systemd a stand-in does what the lines ask it for.
There is no GPU, so the tiny model speaks on a CPU. NOT_RUN has the lines that need more than that.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.soak.image_builder import lent
from tests.support.snippets import ROOT, commands, snippets
from tests.unit.deploy.test_container import COMPOSITIONS

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for chroot and mounts"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap: apt-get install debootstrap"),
]

DOCUMENT: Final = "docs/quickstart-gpu.md"
LINES: Final = [line for each in snippets() if each.document == DOCUMENT for line in commands(each.code)]
NOT_RUN: Final = {
    r"/opt/voicegate/bin/(hf download|voicegate convert) ": "the released weights: the tiny model is in their place",
    r".*grafana|install -d /var/lib/grafana": "Grafana is not in Ubuntu's archive",
    r"docker compose ": "no container engine",
}
NEEDS_NETWORK: Final = r"apt-get |/opt/voicegate/bin/pip "
# Debian's debootstrap has no script of this release, and those of Ubuntu's are all this one.
SCRIPT: Final = "/usr/share/debootstrap/scripts/gutsy"
MIRROR: Final = "http://archive.ubuntu.com/ubuntu"
INSIDE: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Does at once what systemd would, in the same shell's machine; and says what it was asked for.
SYSTEMCTL: Final = r"""#!/bin/bash
echo "$*" >> /root/asked
case "$*" in
"enable --now voicegate")
    unit=/etc/systemd/system/voicegate.service
    set -a && . /etc/voicegate/environment && set +a
    install -d -o voicegate /var/lib/voicegate/voices /var/cache/voicegate
    cd "$(sed -n 's/^WorkingDirectory=//p' $unit)"
    setsid runuser -u voicegate -- $(sed -n 's/^ExecStart=//p' $unit) > /root/voicegate.log 2>&1 &
    for attempt in $(seq 600); do curl -sf http://127.0.0.1:8080/readyz && exit; sleep 0.2; done
    cat /root/voicegate.log; exit 1 ;;
"reload caddy")
    export XDG_DATA_HOME=/var/lib/caddy
    setsid caddy start --config /etc/caddy/Caddyfile --adapter caddyfile > /root/caddy.log 2>&1
    for attempt in $(seq 600); do curl -s https://localhost/readyz && exit; sleep 0.2; done
    cat /root/caddy.log; exit 1 ;;
esac
"""


COMPILES: Final = """
from triton.runtime.build import compile_module_from_src
from voicegate.gateway.cli.checks.engine import missing_for_triton
assert missing_for_triton() is None
compile_module_from_src(
    src='#include <Python.h>\\nstatic PyModuleDef d = {PyModuleDef_HEAD_INIT, "m"};'
    'PyMODINIT_FUNC PyInit_m(void) { return PyModule_Create(&d); }',
    name="m",
)
"""


def is_run(line: str) -> bool:
    return not any(re.match(pattern, line) for pattern in NOT_RUN)


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._variables, self._paths = lent()

    def run(self, script: str, *, has_network: bool) -> str:
        """Returns its output. Without a network the machine has ports of its own, 80 and 443 too."""
        binds = [f"mount --bind {path} {self.root}{path}" for path in (Path("/dev"), *self._paths)]
        binds.append(f"mount -t proc proc {self.root}/proc")
        told = {"PATH": INSIDE, "HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        told |= self._variables if has_network else {}
        inside = shlex.join(
            ["env", "-i", *(f"{name}={value}" for name, value in told.items()), "bash", "-euxc", script]
        )
        lines = [*binds, *([] if has_network else ["ip link set lo up"]), f"exec chroot {self.root} {inside}"]
        flags = ["--mount", "--pid", "--fork", "--kill-child", *([] if has_network else ["--net"])]
        done = subprocess.run(
            ["unshare", *flags, "sh", "-euc", "\n".join(lines)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="ubuntu-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        packages = "--include=ca-certificates,curl,iproute2,openssl"
        command = ["debootstrap", "--no-check-gpg", "--variant=minbase", "--components=main,universe", packages]
        subprocess.run([*command, "noble", folder, MIRROR, SCRIPT], stdout=subprocess.DEVNULL, check=True)
        clone = root / "srv/voicegate"
        clone.mkdir(parents=True)
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        packed = subprocess.run(
            ["tar", "--create", "--null", "--files-from=-"], cwd=ROOT, input=listed, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "--extract", "--directory", clone], input=packed.stdout, check=True)
        for path in lent()[1]:
            there = root / str(path).lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.mkdir(exist_ok=True) if path.is_dir() else there.touch()
        yield Machine(root)


def test_every_line_runs_in_its_order(machine: Machine) -> None:
    run = [line for line in LINES if is_run(line)]
    first = run[: max(run.index(line) for line in run if re.match(NEEDS_NETWORK, line)) + 1]
    machine.run("\n".join(["cd /srv/voicegate", *first]), has_network=True)
    assert "Python 3.12" in machine.run("/opt/voicegate/bin/python --version", has_network=False)
    # As on a GPU: Triton compiles a module for Python at a start.
    machine.run(f"/opt/voicegate/bin/python -c {shlex.quote(COMPILES)}", has_network=False)
    systemctl = machine.root / "usr/local/bin/systemctl"
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    rest = "\n".join(run[len(first) :])
    # A name for which Caddy signs by itself, a recording, a model where the converter would have put one, and the key.
    rest = rest.replace("SITE=gate.example", "SITE=localhost").replace("vg_...", '"$(cat /root/key)"')
    rest = re.sub(r"(keys add kiosk .*)", r"\1 | tee /root/key", rest)
    before = "mkdir -p /srv/models; cp -r models/tiny /srv/models/cosyvoice3"
    before += "; cp models/tiny/voices/woman_prompt.wav anna.wav"
    printed = machine.run(f"cd /srv/voicegate\n{before}\n{rest}\ngrep -c . hello.wav", has_network=False)
    assert "SUCCESS" in printed, "promtool has read configuration and alerts"
    asked = (machine.root / "root/asked").read_text().splitlines()
    assert asked == ["daemon-reload", "enable --now voicegate", "reload caddy", "restart prometheus"]
    assert (machine.root / "srv/voicegate/hello.wav").stat().st_size > 10_000
    assert (machine.root / "srv/models/cosyvoice3/voices/anna.safetensors").is_file()


@pytest.mark.parametrize("files", COMPOSITIONS)
def test_docker_compose_reads_its_files(machine: Machine, files: tuple[str, ...]) -> None:
    """Its plugin needs no engine for that."""
    named = " ".join(f"-f deploy/{name}" for name in files)
    told = "MODEL_DIR=/srv SITE=gate.example VOICEGATE_API_KEY=k VOICEGATE_TOKEN_SECRET=s GRAFANA_PASSWORD=p"
    install = "apt-get install -y -qq --no-install-recommends docker-compose-v2 >/dev/null"
    printed = machine.run(f"cd /srv/voicegate\n{install}\n{told} docker compose {named} config", has_network=True)
    assert "restart: unless-stopped" in printed


def test_what_is_not_run_is_there() -> None:
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, line) for line in LINES)] == []
