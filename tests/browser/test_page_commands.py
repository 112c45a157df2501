"""The commands that the page shows, where an address or a choice is not plain."""

import ast
import shlex

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import complaints_of
from tests.browser.rig import serving
from tests.browser.test_page import visit

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def commands(page: Page) -> tuple[str, str]:
    """Commands of curl and of Python."""
    await page.get_by_text("Save it, or make it by code").click()
    await expect(page.locator("#python")).to_contain_text("import OpenAI")
    return str(await page.locator("#curl").text_content()), str(await page.locator("#python").text_content())


async def test_a_shell_reads_the_whole_address(page: Page) -> None:
    async with serving() as (origin, _), visit(page, origin):
        await page.evaluate("history.replaceState(null, '', `/it's (a)&b[c]/?x=1`)")
        curl, _ = await commands(page)
        expected = await page.evaluate("new URL('v1/audio/speech', location.href).href")
        assert shlex.split(curl)[1] == expected
        assert shlex.split(curl, posix=False)[1].startswith("'"), "zsh reads the brackets of [::1], too"
    complaints_of(page).clear()  # of what is not there


async def test_a_key_in_the_address_is_asked_for_by_the_commands(page: Page) -> None:
    key = "a-key-for-the-page"
    async with serving(api_key=key) as (origin, _), visit(page, f"{origin}/?api_key={key}"):
        curl, python = await commands(page)
        assert "Authorization: Bearer $VOICEGATE_API_KEY" in curl
        assert "VOICEGATE_API_KEY" in python
        assert key not in curl + python


async def test_python_is_whole_where_no_voice_is_known(page: Page) -> None:
    await page.route("**/v1/voices", lambda route: route.fulfill(status=500))
    async with serving() as (origin, _):
        await page.goto(origin)
        _, python = await commands(page)
        names = {node.id for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Name)}
        assert "undefined" not in names
        await page.goto("about:blank")
    complaints_of(page).clear()  # of the refusal
