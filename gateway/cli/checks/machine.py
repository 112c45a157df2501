"""Checks of the machine itself: Python, libopus, cores, the port, open files, sound. No models."""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final

from voicegate.clients.python.decode import check_opus
from voicegate.clients.python.errors import MissingDependency
from voicegate.clients.python.playback import find_sound_device
from voicegate.engine.cores import read_core_times, usable_cores
from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.entrance.descriptors import FileLimits

# Long enough to see who computes, short enough not to be waited for.
_LOOK_S: Final = 0.5
# Share of all cores; less is what any machine does beside.
_BUSY_SHARE: Final = 0.2


def shared_cores() -> str | None:
    """Why the cores are not the gateway's own; None: nothing that can be seen."""
    num_cores = len(usable_cores())
    before = read_core_times()
    time.sleep(_LOOK_S)
    now = read_core_times()
    if before is None or now is None:
        return None
    share = now.others_since(before) / num_cores
    if share < _BUSY_SHARE:
        return None
    return f"others keep {100 * share:.0f} % of {num_cores} cores busy: speech takes longer by as much"


_PYTHONS: Final = ((3, 11), (3, 12))  # of pyproject.toml
_PROBE_TIMEOUT_S: Final = 1.0
_RUNNING: Final = "is in use by a running voicegate"


def check_python(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    if version in _PYTHONS:
        return Finding(Level.OK, "python", shown)
    wanted = " or ".join(".".join(map(str, python)) for python in _PYTHONS)
    return Finding(Level.FAIL, "python", f"{shown} is not supported: make a virtual environment with Python {wanted}")


def check_libopus() -> Finding:
    try:
        return Finding(Level.OK, "libopus", check_opus())
    except MissingDependency as error:
        return Finding(Level.FAIL, "libopus", str(error))


def check_cores() -> Finding:
    shared = shared_cores()
    if shared is None:
        return Finding(Level.OK, "cores", "nothing else that computes was seen: they are its own")
    return Finding(Level.WARN, "cores", shared)


def check_ports(config: GatewayConfig) -> Iterator[Finding]:
    yield (own := check_port(config.host, config.port))
    if own.text.endswith(_RUNNING):  # the others are its, too
        return
    if config.metrics_port is not None:
        yield check_port(config.metrics_host, config.metrics_port, "--metrics-port")
    if config.agent_port is not None:
        yield check_port(config.agent_host, config.agent_port, "--agent-port")
    if config.wyoming_port is not None:
        yield check_port(config.host, config.wyoming_port, "--wyoming-port")


def check_port(host: str, port: int, flag: str = "--port") -> Finding:
    where = f"{host}:{port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if _is_gateway(http.client.HTTPConnection(host, port, timeout=_PROBE_TIMEOUT_S)) or _is_gateway(
            http.client.HTTPSConnection(host, port, timeout=_PROBE_TIMEOUT_S, context=_trusting())
        ):
            return Finding(Level.OK, "port", f"{where} {_RUNNING}")
        return Finding(Level.FAIL, "port", f"{where}: {error.strerror or error}; choose another with {flag}")
    return Finding(Level.OK, "port", f"{where} is free")


def check_open_files(max_sockets: int, limits: FileLimits) -> Finding:
    """`serve` raises the soft limit by itself."""
    raised = limits.raised_for(max_sockets)
    room = raised.room_for(max_sockets)
    shown = "no limit" if raised.soft is None else f"at most {raised.soft}"
    if room == max_sockets:
        return Finding(Level.OK, "open files", f"{shown}; room for {room} sockets")
    level, text = (Level.WARN, f"room for {room} of {max_sockets} sockets") if room else (Level.FAIL, "no room for any")
    return Finding(level, "open files", f"{shown}; {text}: raise the hard limit (ulimit -Hn, LimitNOFILE=)")


def check_sound() -> Finding:
    try:
        return Finding(Level.OK, "sound", find_sound_device())
    except MissingDependency as error:
        return Finding(Level.WARN, "sound", f"{error}; only `voicegate say` without -o needs it")


def _trusting() -> ssl.SSLContext:
    """It only asks who is there."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _is_gateway(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/healthz")
        return (connection.getresponse().getheader("Server") or "").startswith("voicegate/")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
