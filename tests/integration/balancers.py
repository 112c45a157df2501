"""deploy/'s HAProxy and nginx, started for real on loopback with the shipped configuration, before three gateways."""

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.polling import until
from tests.support.ports import reserved_port
from tests.support.programs import required
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.server import Gateway

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVER = re.compile(r"10\.0\.0\.1(\d):8080")
NAMES = ("gw1", "gw2", "gw3")


@dataclass
class Host:
    """One gateway at an address of its own, that may be restarted there."""

    name: str
    script: Script
    port: int
    agent_port: int

    async def start(self) -> None:
        config = GatewayConfig(
            port=self.port, agent_port=self.agent_port, instance=self.name, trusted_proxies="127.0.0.0/8"
        )
        self.engine = FakeEngine(self.script)
        self.gateway, self._stop = Gateway(config, self.engine), asyncio.Event()
        self._serving = asyncio.create_task(self.gateway.serve_until(self._stop))
        await self.gateway.settled.wait()

    async def stop(self) -> None:
        """As SIGTERM does: it drains."""
        self._stop.set()
        assert await self._serving == 0


@dataclass(frozen=True)
class Fleet:
    hosts: list[Host]
    balancer_port: int


@contextlib.asynccontextmanager
async def running_fleet(script: Script) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as running:
        ports = [running.enter_context(reserved_port()) for _ in range(1 + 2 * len(NAMES))]
        hosts = [Host(name, script, ports.pop(), ports.pop()) for name in NAMES]
        for host in hosts:
            await host.start()
            running.push_async_callback(host.stop)
        yield Fleet(hosts, ports.pop())


def _addresses(text: str, fleet: Fleet) -> str:
    return SERVER.sub(lambda match: f"127.0.0.1:{fleet.hosts[int(match[1]) - 1].port}", text)


@dataclass(frozen=True)
class Balancer:
    url: str
    directory: Path


@contextlib.asynccontextmanager
async def haproxy(fleet: Fleet, directory: Path) -> AsyncIterator[Balancer]:
    text = _addresses((DEPLOY / "haproxy/haproxy.cfg").read_text(), fleet)
    for host in fleet.hosts:
        line = rf"(server {host.name} \S+ agent-port) 9465"
        text, num_found = re.subn(line, rf"\1 {host.agent_port}", text)
        assert num_found == 1
    text = text.replace("global\n", f"global\n    stats socket {directory}/admin\n", 1)
    async with _running_haproxy(text, fleet, directory) as balancer:
        await until(lambda: _is_open(directory / "admin"))  # it exists before it listens
        for name in NAMES:
            await until_weight(balancer, name, lambda weight: weight > 0)
        yield balancer


@contextlib.asynccontextmanager
async def haproxy_in_a_cluster(
    fleet: Fleet, directory: Path, *, dns_port: int, environment: Mapping[str, str]
) -> AsyncIterator[Balancer]:
    """Before the first host alone, which its DNS is to name."""
    (host, *_) = fleet.hosts
    text = (DEPLOY / "kubernetes/haproxy.cfg").read_text()
    text = _replaced(text, "parse-resolv-conf", f"nameserver dns 127.0.0.1:{dns_port}")
    text = _replaced(text, ':8080"', f':{host.port}"')
    text = _replaced(text, "agent-port 9465", f"agent-port {host.agent_port}")
    async with _running_haproxy(text, fleet, directory, environment=environment) as balancer:
        yield balancer


@contextlib.asynccontextmanager
async def _running_haproxy(
    text: str, fleet: Fleet, directory: Path, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Balancer]:
    # Gateways and clients share one event loop here, which a busy machine holds up for longer than two checks.
    text = _replaced(text, "fall 2", "fall 1000")
    text = _replaced(text, "bind :8080", f"bind 127.0.0.1:{fleet.balancer_port}")
    text = _replaced(text, "maxconn 20000", "maxconn 500")  # each takes two of the files that a developer may open
    path = directory / "haproxy.cfg"
    path.write_text(text)
    command = [required("haproxy"), "-db", "-f", str(path)]
    async with running_proxy(command, fleet.balancer_port, directory, environment=environment):
        yield Balancer(f"ws://127.0.0.1:{fleet.balancer_port}", directory)


def _replaced(text: str, shipped: str, here: str) -> str:
    assert shipped in text
    return text.replace(shipped, here)


@contextlib.asynccontextmanager
async def nginx(fleet: Fleet, directory: Path) -> AsyncIterator[Balancer]:
    text = _addresses((DEPLOY / "nginx/voicegate.conf").read_text(), fleet)
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{fleet.balancer_port};")
    async with running_nginx(text, fleet.balancer_port, directory):
        yield Balancer(f"ws://127.0.0.1:{fleet.balancer_port}", directory)


@contextlib.asynccontextmanager
async def running_nginx(text: str, port: int, directory: Path) -> AsyncIterator[None]:
    """`text`: of its http block, which has to listen at `port`."""
    program = required("nginx")
    scratch = "".join(
        f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""  # a worker of another user cannot enter pytest's directories
    path = directory / "nginx.conf"
    path.write_text(
        f"{user}daemon off;\npid {directory}/pid;\nerror_log stderr;\nworker_processes 1;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{scratch}{text}}}\n"
    )
    async with running_proxy([program, "-e", "stderr", "-p", str(directory), "-c", str(path)], port, directory):
        yield


@contextlib.asynccontextmanager
async def running_proxy(
    command: list[str], port: int, directory: Path, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, env=os.environ | dict(environment or {})
        )
        try:
            await until(lambda: process.returncode is not None or _is_open(("127.0.0.1", port)))
            assert process.returncode is None, (directory / "log").read_text()
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def _is_open(address: tuple[str, int] | Path) -> bool:
    is_path = isinstance(address, Path)
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as probe:
        return probe.connect_ex(str(address) if is_path else address) == 0


async def until_weight(balancer: Balancer, name: str, is_so: Callable[[int], bool]) -> None:
    """Waits for a weight of HAProxy's server, as its agent-check has set it; 0: it is drained, or down."""
    while not is_so(await _weight(balancer, name)):  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.02)


async def _weight(balancer: Balancer, name: str) -> int:
    reader, writer = await asyncio.open_unix_connection(balancer.directory / "admin")
    writer.write(b"show stat\n")
    rows = [line.split(",") for line in (await reader.read()).decode().splitlines()]
    writer.close()
    head = [title.lstrip("# ") for title in rows[0]]
    (row,) = [dict(zip(head, row, strict=False)) for row in rows if row[:2] == ["gateways", name]]
    is_asked = row["agent_status"].startswith("L7OK")
    return int(row["weight"]) if is_asked and row["status"].startswith("UP") else 0
