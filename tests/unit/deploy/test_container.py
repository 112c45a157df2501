"""The image and its neighbours, as far as they can be read: layers, times, settings, health. Nothing is built here."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.requirements import requirements
from tests.integration.wire_client import running
from tests.support.dockerfile import ROOT, TARGETS, image, instructions, settings, stages
from tests.support.polling import until
from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.llm.cpu import library
from voicegate.gateway.config import from_environment

DOCKER_STOP_S = 10.0  # what `docker stop` gives where nobody says more


def ours(target: str) -> dict[str, str]:
    return {name: value for name, value in settings(target).items() if name.startswith("VOICEGATE_")}


def compose(*names: str) -> dict[str, Any]:
    """Services; of later files laid over those of earlier ones, as far as these tests ask."""
    merged: dict[str, Any] = {}
    for name in names:
        services = yaml.safe_load((ROOT / "deploy" / name).read_text())["services"]
        for service, more in services.items():
            into = merged.setdefault(service, {})
            for key, value in more.items():
                match into.get(key), value:
                    case dict() as old, dict():
                        into[key] = {**old, **value}
                    case list() as old, list():
                        into[key] = [*old, *value]
                    case _:
                        into[key] = value
    return merged


@pytest.mark.parametrize("target", TARGETS)
def test_an_edit_of_our_code_reaches_the_layer_of_our_wheels_alone(target: str) -> None:
    lines = image(target)
    (others,) = [number for number, line in enumerate(lines) if line.endswith("-r /opt/voicegate/requirements.txt")]
    (wheels,) = [number for number, line in enumerate(lines) if "/wheels/*.whl" in line]
    assert others < wheels
    copied = {line for line in lines[:wheels] if line.startswith(("COPY", "ADD"))}
    assert copied <= {
        f"COPY --from=requirements /src/{target}-constraints.txt /opt/voicegate/constraints.txt",
        f"COPY --from=requirements /src/{target}.txt /opt/voicegate/requirements.txt",
    }
    assert "--no-deps --no-index" in lines[wheels]
    (read,) = [line for line in instructions() if line.startswith("COPY pyproject.toml")]
    assert read == "COPY pyproject.toml constraints.txt deploy/requirements.py deploy/gpu-versions.txt ./"


def test_torch_for_a_cpu_comes_from_the_index_that_has_it() -> None:
    lines = image("cpu")
    index = '${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"}'
    (torch,) = [number for number, line in enumerate(lines) if line.endswith(f"{index} torch")]
    assert lines.index("ARG TORCH_INDEX_URL") < torch < next(n for n, line in enumerate(lines) if " -r " in line)
    assert compose("compose.yaml")["voicegate"]["build"]["target"] == "cpu"


def test_the_last_stage_is_the_one_that_runs_anywhere() -> None:
    assert list(stages())[-1] == "cpu"


@pytest.mark.parametrize("extras", [("server",), ("server", "gpu")])
def test_what_is_installed_below_is_all_that_the_server_needs(extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(requirements(project, *extras))
    listed = project["optional-dependencies"]
    named = [item for extra in ("opus", *extras) for item in listed[extra] if not item.startswith("voicegate")]
    assert set(found) == {*project["dependencies"], *named}
    assert any(item.startswith("torch>") for item in found)
    assert len(found) == len(set(found))


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requirements that the stage `requirements` makes of this project, by its own commands."""
    folder = tmp_path_factory.mktemp("requirements")
    (copy,) = [line for line in stages()["requirements"] if line.startswith("COPY")]
    for name in copy.split()[1:-1]:
        shutil.copy(ROOT / name, folder)
    (command,) = [line.removeprefix("RUN ") for line in stages()["requirements"] if line.startswith("RUN")]
    subprocess.run(command.replace("python ", f"{shlex.quote(sys.executable)} "), shell=True, cwd=folder, check=True)
    return folder


def test_a_gpu_has_the_versions_that_were_measured_and_all_else_as_everywhere(listed: Path) -> None:
    own = pins(ROOT / "deploy/gpu-versions.txt")
    assert set(own) == {"torch", "triton", "setuptools"}
    assert pins(listed / "gpu-constraints.txt") == {**without_nvidias(pins(ROOT / "constraints.txt")), **own}
    measured = json.loads((ROOT / "bench/results/engine-h200.json").read_text())["environment"]
    assert (measured["torch"].partition("+")[0], measured["triton"]) == (own["torch"], own["triton"])


# Tritons that torch's builds for CUDA ask for, as their wheels say; those for a CPU, which tests run on, ask for none.
TRITON_OF_TORCH = {"2.11.0": "3.6.0", "2.13.0": "3.7.1"}


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_what_is_pinned_goes_with_a_torch_for_cuda(target: str, listed: Path) -> None:
    """Which a default index has for `cpu` too."""
    pinned = pins(listed / f"{target}-constraints.txt")
    assert pinned.get("triton") in (None, TRITON_OF_TORCH[pinned["torch"]])


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_torch_may_have_the_cuda_packages_that_it_names(target: str, listed: Path) -> None:
    pinned = pins(listed / f"{target}-constraints.txt")
    assert pinned == without_nvidias(pinned)


def without_nvidias(pinned: dict[str, str]) -> dict[str, str]:
    return {name: version for name, version in pinned.items() if not name.startswith(("cuda-", "nvidia-"))}


def pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines)
    return found


def test_nvidias_torch_and_triton_stay_as_they_are(listed: Path) -> None:
    """Nothing that NVIDIA's image has is asked for in another version."""
    names = {re.split(r"[><=;]", line)[0] for line in (listed / "tensorrt-llm.txt").read_text().splitlines()}
    assert "websockets" in names
    assert not names & {"torch", "triton"}
    (install,) = [line for line in image("tensorrt-llm") if "/opt/voicegate/image.txt -r" in line]
    assert "pip freeze" in install


def test_what_tools_leave_is_not_sent_to_the_builder() -> None:
    rules = [rule.removeprefix("**/") for rule in (ROOT / ".dockerignore").read_text().split()]
    left = [name.strip("/") for name in (ROOT / ".gitignore").read_text().split()]
    assert [name for name in left if not any(fnmatchcase(name.replace("*", "x"), rule) for rule in rules)] == []


@pytest.mark.parametrize("target", TARGETS)
def test_the_image_asks_for_a_key_and_stops_in_time(target: str) -> None:
    config = from_environment(ours(target))
    assert config.require_key
    assert config.host == "0.0.0.0"
    assert config.drain_s < DOCKER_STOP_S
    users = [line for line in image(target) if line.startswith("USER")]
    assert re.fullmatch(r"USER [1-9]\d+", users[-1]), "a number, so that an orchestrator sees that it is not root"
    assert image(target).index(users[-1]) > max(n for n, line in enumerate(image(target)) if line.startswith("RUN"))


def test_what_needs_a_gpu_does_not_fall_back() -> None:
    for target in ("gpu", "tensorrt-llm"):
        assert from_environment(ours(target)).device == "cuda"
        assert settings(target)["TRITON_CACHE_DIR"].startswith("/cache/")
    assert from_environment(ours("tensorrt-llm")).llm_backend == "tensorrt-llm"


def test_tools_that_build_are_left_behind() -> None:
    """But for the C compiler that Triton calls where it runs."""
    installed = {
        target: {
            word
            for line in image(target)
            for part in line.split("&&")
            if "apt-get install" in part
            for word in part.split("--no-install-recommends")[1].split()
        }
        for target in TARGETS
    }
    assert installed == {
        "cpu": {"libopus0"},
        "gpu": {"libopus0", "gcc", "libc6-dev"},
        "tensorrt-llm": {"libopus0"},
    }
    assert not [line for target in TARGETS for line in image(target) if "pip wheel" in line]


def test_what_c_becomes_is_in_the_wheel_of_an_image_without_a_compiler() -> None:
    """The folder is the package's own: what is compiled elsewhere would not be packed."""
    (made,) = [line for line in stages()["wheels"] if "pip wheel" in line]
    assert f"python -m {library.__name__} engine/llm/cpu && pip wheel" in made
    assert library.SOURCE.resolve() == ROOT / "engine/llm/cpu/decode.c"
    (installed,) = [line for line in stages()["wheels"] if "apt-get install" in line]
    assert {"gcc", "libc6-dev"} <= set(installed.split())


def test_hadolint_finds_nothing_wrong() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


COMPOSITIONS = [("compose.yaml",), ("compose.yaml", "compose.gpu.yaml"), ("compose.gpus.yaml",)]


def extended(services: dict[str, Any]) -> dict[str, Any]:
    """With those that they stand on in another file."""
    made = {}
    for name, service in services.items():
        below = service.get("extends")
        base = compose(below["file"])[below["service"]] if below else {}
        environment = {**base.get("environment", {}), **service.get("environment", {})}
        made[name] = {**base, **service, **({"environment": environment} if environment else {})}
    return made


@pytest.mark.parametrize("files", COMPOSITIONS)
def test_neighbours_fit(files: tuple[str, ...]) -> None:
    services = extended(compose(*files))
    gateways = {name: service for name, service in services.items() if "build" in service}
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    for name, gateway in gateways.items():
        asks, given = gateway["environment"], {"VOICEGATE_API_KEY": "k" * 32}
        if "VOICEGATE_TOKEN_SECRET" in asks:
            given["VOICEGATE_TOKEN_SECRET"] = "s" * 32
        target = gateway["build"]["target"]
        config = from_environment({**ours(target), **asks, **given})
        assert float(gateway["stop_grace_period"].removesuffix("s")) > config.drain_s + 5
        assert asks["VOICEGATE_API_KEY"].startswith("${VOICEGATE_API_KEY:?")
        (names,) = scraped["dns_sd_configs"]
        aliases = gateway.get("networks", {}).get("voicegate", {}).get("aliases", [name])
        assert (names["names"], names["port"]) == (aliases, config.metrics_port)
        assert ("reservations" in gateway.get("deploy", {}).get("resources", {})) is (target == "gpu")
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / "deploy" / source).is_dir()


@pytest.mark.parametrize("files", COMPOSITIONS)
def test_nothing_is_published_in_the_clear_and_all_come_back_after_a_reboot(files: tuple[str, ...]) -> None:
    services = extended(compose(*files))
    assert {service["restart"] for service in services.values()} == {"unless-stopped"}
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    open_to_all = {name for name, ports in published.items() if not all(port.startswith("127.") for port in ports)}
    assert open_to_all == {"caddy"}
    assert published["caddy"] == ["80:80", "443:443"]
    upstream, _, port = services["caddy"]["environment"]["UPSTREAM"].partition(":")
    assert (upstream in services, port) == (True, "8080")


@pytest.mark.parametrize("files", COMPOSITIONS)
def test_a_gateway_that_is_unhealthy_is_replaced_with_its_time_to_drain(files: tuple[str, ...]) -> None:
    services = extended(compose(*files))
    assert services["autoheal"]["network_mode"] == "none", "it has Docker's socket, and so all rights"
    for service in services.values():
        if "build" in service:
            assert service["labels"]["autoheal"] == "true"
            assert f"{service['labels']['autoheal.stop.timeout']}s" == service["stop_grace_period"]
    assert [line for target in TARGETS for line in image(target) if line.startswith("HEALTHCHECK")]


@pytest.mark.parametrize("files", COMPOSITIONS)
def test_clients_count_by_their_own_addresses(files: tuple[str, ...]) -> None:
    """Behind Caddy, and HAProxy where it is."""
    text = yaml.safe_load((ROOT / "deploy" / files[0]).read_text())
    (network,) = text["networks"].values()
    (place,) = network["ipam"]["config"]
    services = extended(compose(*files))
    in_front = [services[name] for name in ("haproxy", "caddy") if "networks" in services.get(name, ())]
    proxies = [service["networks"]["voicegate"]["ipv4_address"] for service in in_front]
    for service in services.values():
        if "build" in service:
            trusted = service["environment"]["VOICEGATE_TRUSTED_PROXIES"].split(",")
            assert trusted == (proxies or [place["subnet"]])


def test_gateways_of_several_gpus_are_where_haproxy_looks_for_them() -> None:
    services = compose("compose.gpus.yaml")
    balancer = (ROOT / "deploy/haproxy/haproxy.cfg").read_text()
    found = dict(re.findall(r"^    server (\w+) ([\d.]+):8080 agent-port 9465$", balancer, re.MULTILINE))
    gateways = {name: service for name, service in services.items() if "build" in service}
    assert {name: service["networks"]["voicegate"]["ipv4_address"] for name, service in gateways.items()} == found
    used = [service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for service in gateways.values()]
    assert used == [[str(number)] for number in range(len(gateways))]
    for name, gateway in gateways.items():
        config = from_environment(
            {**gateway["environment"], "VOICEGATE_API_KEY": "k" * 32, "VOICEGATE_TOKEN_SECRET": "s" * 32}
        )
        assert (config.instance, config.agent_port) == (name, 9465)


class HangingEngine(FakeEngine):
    pulse = 0


@pytest.mark.parametrize("engine", [FakeEngine(), HangingEngine()])
async def test_the_health_check_asks_the_server(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {tuple(json.loads(line[line.index("[") :])) for line in instructions() if line.startswith("HEALTHCHECK")}
    assert {command[0] for command in commands} == {"python", "python3"}
    (command,) = {command[1:] for command in commands}
    hangs = engine.pulse is not None
    async with running(engine, engine_timeout_s=1.0) as served:
        await until(lambda: hangs is (served.gateway._watchdog.trouble is not None))
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # as ~/.docker/config.json has it for all containers
        monkeypatch.setenv("VOICEGATE_PORT", served.gateway.url.split(":")[2].split("/")[0])
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        assert (await process.wait() == 0) is not hangs
