"""deploy/caddy/Caddyfile as it stands, in front of a gateway with the settings of deploy/environment.example."""

import asyncio
import ssl
import urllib.request
from dataclasses import replace
from pathlib import Path

from tests.integration.balancers import running_proxy
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from tests.support.ports import reserved_port
from tests.support.programs import required
from tests.unit.deploy.test_service import environment
from voicegate.clients.python.client import connect
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.auth.key_file import add_key
from voicegate.gateway.auth.keyring import Key, digest_of
from voicegate.gateway.config import from_environment
from voicegate.gateway.server.run import running_gateway

CADDYFILE = Path(__file__).parents[2] / "deploy/caddy/Caddyfile"
SECRET = "vg_0123456789abcdef"
# Tests open no port 80, and change no store of certificates.
ALONE = "{\nadmin off\nauto_https disable_redirects\nskip_install_trust\n}\n"


async def has_a_certificate(port: int) -> None:
    """Returns when there is one: Caddy makes it while it listens, and refuses handshakes until then."""
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    while True:
        try:
            _, writer = await asyncio.open_connection("localhost", port, ssl=anyone, server_hostname="localhost")
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return writer.close()


async def test_it_speaks_by_tls_to_clients_with_a_key(tmp_path: Path) -> None:
    add_key(tmp_path / "keys", Key("kiosk", digest_of(SECRET)))
    config = replace(
        from_environment({**environment(all_of_it=False), "VOICEGATE_ALLOWED_HOSTS": "localhost"}),
        port=0,
        metrics_port=None,
        api_keys_file=tmp_path / "keys",
        voices_dir=None,
    )
    engine = FakeEngine()
    with reserved_port() as port:
        (tmp_path / "Caddyfile").write_text(ALONE + CADDYFILE.read_text())
        async with asyncio.timeout(PATIENCE_S), running_gateway(config, engine) as url:
            told = {"SITE": f"localhost:{port}", "UPSTREAM": url.split("/")[2]}
            homes = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
            command = [required("caddy"), "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"]
            async with running_proxy(command, port, tmp_path, environment=told | homes):
                authority = tmp_path / "caddy/pki/authorities/local/root.crt"
                await until(authority.exists)
                await has_a_certificate(port)
                async with connect(f"wss://localhost:{port}", api_key=SECRET, ca_file=authority) as gate:
                    packets = [packet async for packet in gate.speak("Hello there.")]
                context = ssl.create_default_context(cafile=authority)
                with await asyncio.to_thread(
                    urllib.request.urlopen, f"https://localhost:{port}/readyz", context=context
                ) as answer:
                    assert answer.status == 200
    assert len(packets) > 10
    assert len(engine.requests) == 1
