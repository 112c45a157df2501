"""Those who stop the server give it the time that it takes, and ask it for what it gives."""

import getpass
import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.deploy.test_setup import program
from voicegate.gateway.config import GatewayConfig, from_environment
from voicegate.gateway.server.entrance.exposure import exposures_of
from voicegate.gateway.server.entrance.sites import is_loopback

DEPLOY = Path(__file__).parents[3] / "deploy"


def unit() -> dict[str, str]:
    lines = [line for line in (DEPLOY / "voicegate.service").read_text().splitlines() if "=" in line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines)


def test_the_unit_leaves_time_to_drain_and_to_be_told_of_a_hang() -> None:
    config, settings = GatewayConfig(), unit()
    assert float(settings["TimeoutStopSec"]) > config.drain_s + 5
    assert float(settings["WatchdogSec"]) > 2 * config.engine_timeout_s
    assert int(settings["LimitNOFILE"]) > 4 * config.max_sockets
    assert settings["Type"] == "notify"
    assert settings["KillMode"] == "mixed"


def test_the_service_may_list_the_interfaces_on_which_it_announces_itself() -> None:
    """Without netlink getifaddrs fails with EAFNOSUPPORT, and with it the start with --wyoming-zeroconf."""
    assert "AF_NETLINK" in unit()["RestrictAddressFamilies"].split()


def environment(*, all_of_it: bool) -> dict[str, str]:
    """The example's settings; `all_of_it`: those in remarks too, the later ones count."""
    lines = (DEPLOY / "environment.example").read_text().splitlines()
    kept = [line.lstrip("#") if all_of_it else line for line in lines if not line.startswith("# ")]
    return dict(line.split("=", 1) for line in kept if not line.startswith("#"))


@pytest.mark.parametrize("all_of_it", [False, True])
def test_the_example_environment_is_safe_as_it_stands(all_of_it: bool) -> None:
    config = from_environment(environment(all_of_it=all_of_it))
    assert config.require_key
    assert config.api_keys_file is not None
    assert config.metrics_port == 9464
    assert is_loopback(config.metrics_host)
    assert list(exposures_of(config, asks_for_keys=True)) == []
    assert is_loopback(config.host) is not all_of_it, "in the clear on loopback alone; elsewhere with TLS"
    if not all_of_it:
        assert config.trusted_networks, "the proxy is on this machine"
        assert config.allowed_hosts, "else a GET by the public name gets 403"


def test_a_gpu_is_seen_by_the_service() -> None:
    lines = (DEPLOY / "voicegate-gpu.conf").read_text().splitlines()
    loosened = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    assert loosened == {"PrivateDevices": "no", "ProtectClock": "no"}
    assert {name: unit()[name] for name in loosened} == {"PrivateDevices": "yes", "ProtectClock": "yes"}


def test_certbots_hook_gives_the_services_user_a_copy_and_has_it_read(tmp_path: Path) -> None:
    lineage, folder, programs = tmp_path / "live", tmp_path / "tls", tmp_path / "bin"
    lineage.mkdir()
    for name in ("fullchain", "privkey"):
        (lineage / f"{name}.pem").write_text(name)
    program(programs / "systemctl", f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n')
    paths = {"RENEWED_LINEAGE": str(lineage), "TLS_DIR": str(folder), "GATEWAY_USER": getpass.getuser()}
    told = {**os.environ, **paths, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["sh", DEPLOY / "certbot-deploy-hook.sh"], env=told, check=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"cert.pem": "fullchain", "key.pem": "privkey"}
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, 0o600, 0o600]
    assert (tmp_path / "asked").read_text().splitlines() == ["is-active --quiet voicegate", "reload voicegate"]
