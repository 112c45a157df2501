"""The image and its neighbours, as far as they can be read: layers, times, settings, health. Nothing is built here."""

import asyncio
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.requirements import requirements
from tests.integration.wire_client import running
from tests.support.polling import until
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.config import from_environment

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
DOCKER_STOP_S = 10.0  # what `docker stop` gives where nobody says more


def instructions() -> Iterator[str]:
    """Of the Dockerfile, each on a line."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return (" ".join(line.split()) for line in text.splitlines() if line.strip() and line[0] != "#")


def of_the_image() -> list[str]:
    """Of the last stage, which is what is shipped."""
    lines = list(instructions())
    begin = max(number for number, line in enumerate(lines) if line.startswith("FROM"))
    return lines[begin:]


def settings() -> dict[str, str]:
    (line,) = [line for line in of_the_image() if line.startswith("ENV")]
    return dict(word.split("=", 1) for word in shlex.split(line)[1:])


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    return services


def test_an_edit_of_our_code_reaches_the_layer_of_our_wheels_alone() -> None:
    lines = of_the_image()
    index = '${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"}'
    (torch,) = [number for number, line in enumerate(lines) if line.endswith(f"{index} torch")]
    (others,) = [number for number, line in enumerate(lines) if line.endswith("-r /opt/voicegate/requirements.txt")]
    (ours,) = [number for number, line in enumerate(lines) if "/wheels/*.whl" in line]
    assert torch < others < ours
    copied = [line for line in lines[:ours] if line.startswith(("COPY", "ADD"))]
    assert copied == [
        "COPY constraints.txt /opt/voicegate/",
        "COPY --from=requirements /src/requirements.txt /opt/voicegate/",
    ]
    assert "--no-deps --no-index" in lines[ours]
    (read,) = [line for line in instructions() if line.startswith("COPY pyproject.toml")]
    assert read == "COPY pyproject.toml deploy/requirements.py ./"
    assert lines.index("ARG TORCH_INDEX_URL") < torch


def test_what_is_installed_below_is_all_that_the_server_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(requirements(project, "server"))
    extras = project["optional-dependencies"]
    assert set(found) == {*project["dependencies"], *extras["opus"], *extras["server"]} - {
        item for item in extras["server"] if item.startswith("voicegate")
    }
    assert any(item.startswith("torch>") for item in found)
    assert len(found) == len(set(found))


def test_the_image_asks_for_a_key_and_stops_in_time() -> None:
    config = from_environment(settings())
    assert config.require_key
    assert config.host == "0.0.0.0"
    assert config.drain_s < DOCKER_STOP_S
    users = [line for line in of_the_image() if line.startswith("USER")]
    assert re.fullmatch(r"USER [1-9]\d+", users[-1]), "a number, so that an orchestrator sees that it is not root"


def test_its_neighbours_fit() -> None:
    services = compose()
    gateway = services["voicegate"]
    asks, given = gateway["environment"], {"VOICEGATE_API_KEY": "k" * 32}
    config = from_environment({**settings(), **asks, **given})
    assert float(gateway["stop_grace_period"].removesuffix("s")) > config.drain_s + 5
    assert asks["VOICEGATE_API_KEY"].startswith("${VOICEGATE_API_KEY:?")
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"voicegate:{config.metrics_port}"]
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / "deploy" / source).is_dir()


class HangingEngine(FakeEngine):
    pulse = 0


@pytest.mark.parametrize("engine", [FakeEngine(), HangingEngine()])
async def test_the_health_check_asks_the_server(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = [line for line in of_the_image() if line.startswith("HEALTHCHECK")]
    command = json.loads(line[line.index("[") :])
    assert command[0] == "python"
    hangs = engine.pulse is not None
    async with running(engine, engine_timeout_s=1.0) as served:
        await served.gateway.settled.wait()
        await until(lambda: hangs is (served.gateway._watchdog.trouble is not None))
        monkeypatch.setenv("VOICEGATE_PORT", served.gateway.url.split(":")[2].split("/")[0])
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command[1:], stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        assert (await process.wait() == 0) is not hangs
