"""A real Chromium and a real gateway. deploy/setup.sh installs Chromium; without one these tests are skipped."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, async_playwright, expect

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


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """With a profile of its own. Whatever the browser complains of fails the test."""
    context = await browser.new_context()
    context.set_default_timeout(TIMEOUT_MS)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    _complaints[page] = complaints
    await page.route("**/test/*", _serve)
    loop = asyncio.get_running_loop()
    # A page that waits for something that never comes fails then; a task that is cancelled would wait all the same.
    closing = loop.call_later(TEST_LIMIT_S, lambda: loop.create_task(context.close()))
    yield page
    closing.cancel()
    await context.close()
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
