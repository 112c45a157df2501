"""Every line of the Dockerfile carried out, target by target, on Debian; and what is then there, started as images are.

Not here: the images that it begins with. `python:3.12-slim` is Debian with its own Python, NVIDIA's image the same with
packages older than we would take. torch is the one that this machine's pip takes.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.soak.image_builder import Builder, Image, debian
from tests.soak.keeping import Keep
from tests.support.dockerfile import ROOT, TARGETS
from tests.support.ports import reserved_port
from tests.unit.clients.deadline import deadline
from tests.unit.deploy.test_container import DOCKER_STOP_S

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for chroot and mounts"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap: apt-get install debootstrap"),
]

_START_S = 120.0  # torch is imported and a model warmed up, on a machine that may be busy
_KEY = "k" * 32
# Packages of NVIDIA's image that are older than those that we would take, and in use there.
_NVIDIAS = ("numpy==2.1.3", "msgspec==0.20.0", "PyYAML==6.0.2")


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    with tempfile.TemporaryDirectory(prefix="image-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        (folder / "debian").mkdir()
        builder = Builder(folder)
        system = debian(folder / "debian", "ca-certificates", "python3", "python3-pip", "python3-venv")
        builder.images["${PYTHON_IMAGE}"] = builder.ran(system, "python3 -m venv /usr/local")
        builder.images["${TENSORRT_LLM_IMAGE}"] = builder.ran(
            system, f"pip install --no-cache-dir --break-system-packages {shlex.join((_torch(), *_NVIDIAS))}"
        )
        yield builder


def _torch() -> str:
    return next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ran(builder: Builder, image: Image, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """In a container of its own."""
    command = builder.inside(image, arguments, **variables)
    return subprocess.run(command, capture_output=True, text=True, timeout=_START_S, check=False)


def told_by(builder: Builder, image: Image, program: str) -> str:
    return ran(builder, image, "python3", "-c", program).stdout.strip()


def test_it_builds_and_runs_as_nobody_who_may_change_it(builder: Builder, target: str, keep: Keep) -> None:
    image = builder.build(target)
    sizes = [subprocess.check_output(["du", "-sm", layer], text=True).split()[0] for layer in image.layers]
    keep(size_mib=sum(map(int, sizes)), torch=told_by(builder, image, "import torch; print(torch.__version__)"))
    told = ran(builder, image, "sh", "-c", "id -u; touch /cache/mine /voices/mine; touch /usr/mine /opt/voicegate/mine")
    assert told.stdout == "10001\n"
    assert told.stderr.count("Permission denied") == 2
    compilers = ran(builder, image, "sh", "-c", "command -v cc make cmake cargo git; true").stdout.split()
    assert compilers == (["/usr/bin/cc"] if target == "gpu" else [])
    assert "run the gateway" in ran(builder, image, *image.entrypoint, "--help").stdout
    refused = ran(builder, image, *image.entrypoint, *image.command)
    assert refused.returncode not in (0, None)
    assert "VOICEGATE_API_KEY" in refused.stderr.splitlines()[-1]


@pytest.fixture
def port() -> Iterator[str]:
    with reserved_port() as port:
        yield str(port)


def test_the_small_one_speaks_is_well_and_stops_in_time(builder: Builder, port: str) -> None:
    image = builder.build("cpu")
    loads = "from voicegate.engine.llm.cpu.library import load_library; print(load_library()._name)"
    assert "/site-packages/voicegate/engine/llm/cpu/decode-" in told_by(builder, image, loads)
    settings = {"VOICEGATE_PORT": port, "VOICEGATE_API_KEY": _KEY, "VOICEGATE_THREADS": "1"}
    command = builder.inside(image, [*image.entrypoint, *image.command], **settings)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as container:
        try:
            assert container.stdout is not None
            with deadline(_START_S):
                assert container.stdout.readline().startswith("voicegate is ready")
            assert ran(builder, image, *image.health, VOICEGATE_PORT=port).returncode == 0
            asked = Request(
                f"http://127.0.0.1:{port}/v1/audio/speech",
                data=b'{"model": "tts-1", "voice": "woman", "input": "Good morning.", "response_format": "wav"}',
                headers={"Authorization": f"Bearer {_KEY}", "Content-Type": "application/json"},
            )
            with urlopen(asked, timeout=_START_S) as answer:
                assert len(answer.read()) > 24_000
            os.kill(first_process(container), signal.SIGTERM)
            assert container.wait(timeout=DOCKER_STOP_S) == 0
        finally:
            container.kill()
    assert ran(builder, image, *image.health, VOICEGATE_PORT=port).returncode != 0, "nobody answers any more"


def first_process(container: "subprocess.Popen[str]") -> int:
    """The container's first process, by its number here."""
    (child,) = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
    return int(child)


def test_what_needs_a_gpu_says_so(builder: Builder) -> None:
    for name in ("gpu", "tensorrt-llm"):
        image = builder.build(name)
        refused = ran(builder, image, *image.entrypoint, *image.command, VOICEGATE_API_KEY=_KEY, VOICEGATE_PORT="0")
        assert refused.returncode != 0
        assert "CUDA" in refused.stderr + refused.stdout


def test_triton_finds_a_compiler_where_it_may_write(builder: Builder) -> None:
    program = 'echo "int main(void) { return 7; }" > /cache/a.c && cc -o /cache/a /cache/a.c && /cache/a'
    assert ran(builder, builder.build("gpu"), "sh", "-c", program).returncode == 7


def test_what_nvidias_image_has_stays_as_it_is(builder: Builder) -> None:
    had, has = (
        set(ran(builder, image, "pip", "freeze").stdout.split("\n"))
        for image in (builder.build("${TENSORRT_LLM_IMAGE}"), builder.build("tensorrt-llm"))
    )
    assert {*_NVIDIAS} <= had
    assert had <= has
    assert {re.split("==| @ ", line)[0] for line in has - had} >= {"voicegate", "websockets", "uvloop"}
