"""A real Chromium and a real gateway. deploy/setup.sh installs Chromium; without one these tests are skipped."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Route,
    ViewportSize,
    async_playwright,
    expect,
)

from tests.browser.rig import serving

HERE = Path(__file__).parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=document-user-activation-required",  # as users have it; headless would allow it
    "--host-resolver-rules=MAP insecure.test 127.0.0.1",  # http, and no localhost: what a home network looks like
)
TIMEOUT_MS = 90_000
TEST_LIMIT_S = 120
VIEWPORT: ViewportSize = {"width": 1280, "height": 720}  # Playwright's own

expect.set_options(timeout=TIMEOUT_MS)

_complaints: dict[Page, list[str]] = {}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        reason = "no Chromium: `apt-get install chromium` (Debian), or any Chrome on the PATH"
        # CI installs one; there its absence is a failure and no reason to skip.
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def profile(browser: Browser) -> AsyncIterator[BrowserContext]:
    profile = await browser.new_context(viewport=VIEWPORT)
    profile.set_default_timeout(TIMEOUT_MS)
    yield profile
    assert await profile.storage_state(indexed_db=True) == {"cookies": [], "origins": []}, "the client keeps nothing"
    await profile.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(profile: BrowserContext) -> AsyncIterator[Page]:
    """In the one tab of all tests: one more takes 0.2 s of CPU. Whatever it complains of fails the test.

    Each test has an origin of its own, and leaves a blank page.
    """
    page = profile.pages[0] if profile.pages else await profile.new_page()
    try:
        async with watched(page):
            yield page
    finally:
        await leave_blank(page)


async def leave_blank(page: Page) -> None:
    """As a new tab is. One that cannot be is closed, and the next test opens another."""
    try:
        await page.goto("about:blank")
        await page.unroute_all(behavior="ignoreErrors")
        await page.set_viewport_size(VIEWPORT)
        await page.emulate_media(color_scheme="null")
    except Error:
        await page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def own_page(browser: Browser) -> AsyncIterator[Page]:
    """For what stays with a tab: scripts that run first in every page."""
    page = await browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    async with watched(page):
        yield page
        await page.close()


@contextlib.asynccontextmanager
async def watched(page: Page) -> AsyncIterator[None]:
    complaints: list[str] = []

    def note_error(error: Error) -> None:
        complaints.append(str(error))

    def note_message(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    page.on("pageerror", note_error)
    page.on("console", note_message)
    _complaints[page] = complaints
    await page.route("**/test/*", _serve)
    loop = asyncio.get_running_loop()
    # A page that waits for something that never comes fails then; a task that is cancelled would wait all the same.
    closing = loop.call_later(TEST_LIMIT_S, lambda: loop.create_task(page.close()))
    yield
    closing.cancel()
    page.remove_listener("pageerror", note_error)
    page.remove_listener("console", note_message)
    del _complaints[page]
    assert complaints == []


def complaints_of(page: Page) -> list[str]:
    """For tests that expect some: to be looked at, and cleared."""
    return _complaints[page]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scratch(browser: Browser) -> AsyncIterator[Page]:
    """A page of a gateway, nearly blank, that tests of pure modules share: they leave nothing behind."""
    async with serving() as (origin, _):
        page = await browser.new_page()
        await page.route("**/test/*", _serve)
        await page.goto(f"{origin}/healthz")
        yield page
        await page.close()


async def _serve(route: Route) -> None:
    """Serves files that the tests need in the page and the gateway does not have."""
    name = route.request.url.rpartition("/")[2]
    await route.fulfill(path=HERE / name, content_type="text/javascript")
