"""An app that has the player as a package, built by Vite, webpack and esbuild: it speaks, with both decoders."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, cast

import pytest
import pytest_asyncio
from playwright._impl._driver import compute_driver_executable
from playwright.async_api import Page

from tests.browser.conftest import TIMEOUT_MS
from tests.browser.firefox import firefox, loudspeaker
from tests.browser.rig import serving
from tests.browser.test_firefox import program
from tests.support.patience import PATIENCE_S
from tests.support.programs import required
from tests.support.snippets import snippets
from voicegate import __version__, clients

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLAYER = Path(clients.__file__).parent / "browser/player"
NAME = "voicegate-player"
README = "clients/browser/player/README.md"
APP = Path(__file__).parent / "bundlers/app"
PACKAGES = Path(sys.prefix) / "bundlers/node_modules"
# As clients/browser/README.md has them.
BUILDS: Final = {
    "vite": ("vite/bin/vite.js", "build"),
    "webpack": ("webpack-cli/bin/cli.js", "build", "./main.js", "--mode", "production"),
    "esbuild": (
        *("esbuild/bin/esbuild", "main.js", f"{NAME}/worker.js", f"{NAME}/worklet.js"),
        *("--bundle", "--format=esm", "--minify", "--entry-names=[name]", "--outdir=dist"),
    ),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An app's folder, as its developer has it."""
    if not PACKAGES.is_dir():
        reason = "no bundlers: deploy/setup_node.sh installs them"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("app")
    shutil.copytree(APP, folder, dirs_exist_ok=True)
    options = ("--install-links", "--offline", "--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run([required("npm"), "install", *options, PLAYER], cwd=folder, check=True, timeout=PATIENCE_S)
    return folder


@pytest.fixture
def app(installed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(installed, tmp_path / "app")


async def node(app: Path, *arguments: str | Path) -> asyncio.subprocess.Process:
    executable, _ = compute_driver_executable()  # the one that comes with Playwright
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    return await asyncio.create_subprocess_exec(executable, *arguments, cwd=app, **pipes)


async def build(app: Path, bundler: str) -> None:
    program, *arguments = BUILDS[bundler]
    process = await node(app, PACKAGES / program, *arguments)
    async with asyncio.timeout(PATIENCE_S):
        told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    assert "warning" not in told.decode().lower()
    if bundler != "vite":  # which makes it by itself
        shutil.copy(app / "index.html", app / "dist")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def files_of(folder: Path) -> Iterator[str]:
    """Their origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextlib.asynccontextmanager
async def vite_server(app: Path) -> AsyncIterator[str]:
    """As developers have it: nothing is built. Yields its origin."""
    process = await node(app, PACKAGES / "vite/bin/vite.js", "--host", "127.0.0.1", "--port", "0")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            told = b""
            while (found := re.search(rb"http://127\.0\.0\.1:\d+", re.sub(rb"\x1b\[\d*m", b"", told))) is None:
                told += (line := await process.stdout.readline())
                assert line, told.decode()
        yield found[0].decode()
    finally:
        process.kill()
        await process.communicate()


async def speak(page: Page, origin: str) -> None:
    for decoder in ("webcodecs", "wasm"):
        async with serving(allowed_origins=origin) as (gateway, _):
            await page.goto(f"{origin}/#{gateway},{decoder}")
            await page.reload()  # an address that differs in its hash alone loads nothing
            await page.mouse.click(5, 5)
            await page.wait_for_function("document.title.startsWith('{')", timeout=TIMEOUT_MS)
            told = json.loads(await page.title())
            await page.goto("about:blank")
        assert (told["reason"], told["error"], told["decoder"]) == ("done", None, decoder)
        assert told["playedMs"] == told["audioMs"] > 0


@pytest.mark.parametrize("bundler", BUILDS)
async def test_an_app_that_is_built_speaks(bundler: str, app: Path, page: Page) -> None:
    await build(app, bundler)
    with files_of(app / "dist") as origin:
        await speak(page, origin)


async def hear_the_lines(page: Page, built: Path, folder: Path) -> None:
    """The app of the package's README, as Vite builds it; at another address."""
    shutil.copytree(built / "dist", folder / "dist")
    (script,) = (folder / "dist/assets").glob("index-*.js")
    with files_of(folder / "dist") as origin:
        async with serving(allowed_origins=origin) as (gateway, engine):
            script.write_text(script.read_text().replace("ws://127.0.0.1:8080", gateway.replace("http", "ws")))
            await page.goto(origin)
            await page.click("#speak")
            async with asyncio.timeout(PATIENCE_S):
                await engine.until(lambda: bool(engine.requests) and engine.num_live == 0)
            await page.goto("about:blank")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def built(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    app = shutil.copytree(installed, tmp_path_factory.mktemp("lines") / "app")
    (lines,) = [each.code for each in snippets() if each.document == README and each.language == "html"]
    assert len(lines.splitlines()) <= 10
    (app / "index.html").write_text(
        f'<!doctype html>\n<title>An app</title>\n<link rel="icon" href="data:," />\n{lines}'
    )
    await build(app, "vite")
    return app


async def test_the_lines_of_the_readme_speak_in_chromium(built: Path, tmp_path: Path, page: Page) -> None:
    await hear_the_lines(page, built, tmp_path)


async def test_the_lines_of_the_readme_speak_in_firefox(built: Path, tmp_path: Path) -> None:
    async with (
        loudspeaker(required("pulseaudio"), tmp_path) as sound,  # without one it plays nothing, and the gateway waits
        firefox(program(), tmp_path, sound) as browser,
        browser.page() as page,
    ):
        await hear_the_lines(cast(Page, page), built, tmp_path)


async def test_an_app_that_is_being_written_speaks(app: Path, page: Page) -> None:
    async with vite_server(app) as origin:
        await speak(page, origin)


async def test_a_server_that_renders_pages_may_import_it(app: Path) -> None:
    """Frameworks do, where there is no browser; Node.js had no `navigator` before 21."""
    script = f"import('{NAME}').then(({{ Player }}) => console.log(Player.name))"
    process = await node(app, "--no-experimental-global-navigator", "--eval", script)
    told, _ = await process.communicate()
    assert told.decode() == "Player\n"


async def test_the_package_is_of_this_version() -> None:
    assert json.loads((PLAYER / "package.json").read_text())["version"] == __version__
