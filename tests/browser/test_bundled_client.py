"""The client without sound, from npm's packages, by Vite and esbuild: its README's lines in Chromium and Firefox."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.browser.conftest import complaints_of
from tests.browser.firefox import Firefox, firefox
from tests.browser.rig import serving
from tests.browser.test_bundlers import PACKAGES, files_of, node
from tests.browser.test_firefox import program
from tests.integration.chaos_proxy import ChaosProxy
from tests.support.npm import install_packed
from tests.support.patience import PATIENCE_S
from tests.support.snippets import snippets
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="session")

SLOW: Final = Script(real_time_factor=0.2)  # so that there is a middle
BLOCKS: Final = [each for each in snippets() if each.document == "clients/javascript/README.md"]
(LINES,) = [each.code for each in BLOCKS if each.language == "js" and "document." in each.code]
(ELEMENTS,) = [each.code for each in BLOCKS if each.language == "html"]
SAID: Final = "Well, that is a long story. " * 20  # as the lines have it
# And an icon, for which browsers ask else, in vain. Paragraphs that grow would push the button away under the mouse.
PAGE: Final = f"""<!doctype html>
<title>An app with the client</title>
<style>p {{ height: 3em; overflow: hidden; }}</style>
<link rel="icon" href="data:," />
{ELEMENTS}"""
BUILDS: Final = {
    "vite": ("vite/bin/vite.js", "build"),
    "esbuild": ("esbuild/bin/esbuild", "main.js", "--bundle", "--format=esm", "--outdir=dist"),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An app's folder, as its developer has it."""
    if not PACKAGES.is_dir():
        reason = "no bundlers: deploy/setup_node.sh installs them"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("app")
    install_packed(folder)
    (folder / "index.html").write_text(PAGE)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def silent_firefox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Firefox]:
    home = tmp_path_factory.mktemp("firefox")
    async with firefox(program(), home, f"unix:{home / 'none'}") as browser:
        yield browser


async def build(installed: Path, app: Path, bundler: str, url: str) -> Path:
    """An app whose code is the README's lines: the folder to be served."""
    shutil.copytree(installed, app)
    (app / "main.js").write_text(LINES.replace("ws://127.0.0.1:8080", url))
    script, *arguments = BUILDS[bundler]
    process = await node(app, PACKAGES / script, *arguments)
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    assert "warning" not in told.decode().lower()
    if bundler != "vite":  # which makes it by itself
        shutil.copy(app / "index.html", app / "dist")
    return app / "dist"


async def shown(page: Page, element: str, condition: str = "true") -> Any:
    """An element's text as JSON, once there is some that meets the condition: JavaScript, of `told`."""
    return await page.evaluate(
        f"""(id) => new Promise((resolve) => {{
            const look = () => {{
                const text = document.getElementById(id).textContent;
                const told = text && JSON.parse(text);
                if (told && {condition}) resolve(told);
                else setTimeout(look, 20);
            }};
            look();
        }})""",
        element,
    )


async def use(page: Page, origin: str, proxy: ChaosProxy) -> None:
    """Hears a second, loses the network, hears another second, and stops."""
    await page.goto(origin)
    await shown(page, "packets", "told[0] >= 50")
    await proxy.cut()
    num_heard = (await shown(page, "packets", "told[3] > 0"))[0]
    packets = await shown(page, "packets", f"told[0] >= {num_heard + 50}")
    num_packets, pts_48k, num_bytes, num_resumed = packets
    assert pts_48k == (num_packets - 1) * 960, "none is lost, none comes twice"
    assert num_bytes > 0
    assert num_resumed == 1
    words = await shown(page, "words")
    await page.click("#stop")
    split = await shown(page, "split")
    assert split["spokenText"] + split["remainingText"] == SAID
    heard = [word for word in words if word["endMs"] <= 1000]
    # FakeEngine may tell a part of the next word, too.
    assert 0 < heard[-1]["end"] <= len(split["spokenText"]) <= words[len(heard)]["end"]
    await page.goto("about:blank")


async def speak(page: Page, installed: Path, app: Path, bundler: str) -> None:
    assert len([line for line in LINES.splitlines() if line]) <= 10
    async with asyncio.timeout(2 * PATIENCE_S):
        with files_of(app / "dist") as origin:
            async with serving(SLOW, allowed_origins=origin) as (gateway, _):
                proxy = ChaosProxy(f"{gateway.replace('http', 'ws')}{wire.STREAM_PATH}", seed=0)
                async with proxy.running():
                    await build(installed, app, bundler, proxy.url)
                    await use(page, origin, proxy)


@pytest.mark.parametrize("bundler", BUILDS)
async def test_the_lines_speak_in_chromium(bundler: str, installed: Path, tmp_path: Path, page: Page) -> None:
    await speak(page, installed, tmp_path / "app", bundler)
    complaints_of(page).clear()  # of the cut


@pytest.mark.parametrize("bundler", BUILDS)
async def test_the_lines_speak_in_firefox(
    bundler: str, installed: Path, tmp_path: Path, silent_firefox: Firefox
) -> None:
    async with silent_firefox.page() as page:
        await speak(cast(Page, page), installed, tmp_path / "app", bundler)
