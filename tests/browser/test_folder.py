"""The page and the Python client in a folder of a site, behind nginx and Caddy as in docs/operations/security.md."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.browser.rig import serving
from tests.browser.test_page import AT_1X, speak_to_its_end, write
from tests.integration.balancers import running_nginx, running_proxy
from tests.support.ports import reserved_port
from tests.support.programs import required
from voicegate.clients.bench.dialects import DIALECTS
from voicegate.clients.bench.inquiry import describe
from voicegate.clients.bench.plan import Reader, Target
from voicegate.clients.python.client import connect
from voicegate.gateway.cli.voices import fetch_voices

Proxy = Callable[[str, Path], contextlib.AbstractAsyncContextManager[str]]

pytestmark = pytest.mark.asyncio(loop_scope="session")

DOCUMENT = Path(__file__).parents[2] / "docs/operations/security.md"


def configuration(language: str, gateway: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert "127.0.0.1:8080" in block
    return block.replace("127.0.0.1:8080", gateway)


@contextlib.asynccontextmanager
async def nginx(gateway: str, directory: Path) -> AsyncIterator[str]:
    """The site's origin."""
    with reserved_port() as port:
        text = f"server {{\nlisten 127.0.0.1:{port};\n{configuration('nginx', gateway)}}}\n"
        async with running_nginx(text, port, directory):
            yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def caddy(gateway: str, directory: Path) -> AsyncIterator[str]:
    """The site's origin."""
    with reserved_port() as port:
        text = f"{{\nadmin off\n}}\nhttp://127.0.0.1:{port} {{\n{configuration('caddy', gateway)}}}\n"
        (directory / "Caddyfile").write_text(text)
        command = [required("caddy"), "run", "--config", str(directory / "Caddyfile"), "--adapter", "caddyfile"]
        homes = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(directory))
        async with running_proxy(command, port, directory, environment=homes):
            yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("proxy", [nginx, caddy], ids=["nginx", "caddy"])
async def test_a_folder_of_a_site(proxy: Proxy, page: Page, tmp_path: Path) -> None:
    async with serving(AT_1X) as (gateway, _), proxy(urlsplit(gateway).netloc, tmp_path) as site:
        await page.goto(f"{site}/voice")  # as people write it
        await expect(page).to_have_url(f"{site}/voice/")
        await expect(page.locator("#connection")).to_have_text("Connected to fake")
        await expect(page.get_by_label("Voice", exact=True)).to_be_enabled()
        await write(page, "one two three")
        await speak_to_its_end(page, re.compile(r"^Finished after"))
        await page.goto("about:blank")
        async with connect(f"{site}/voice/") as client:
            assert client.ready.model == "fake"
        listed = await asyncio.to_thread(fetch_voices, f"{site}/voice/")
        assert [voice.name for voice in listed.voices] == list(client.ready.voices)
        target = Target(f"{site}/voice/")
        assert (await describe(target))["model"] == "fake"
        await (await DIALECTS["elevenlabs"](target, Reader.PROMPT)).close()
