"""The lines of clients/browser/README.md, as they stand, in a page that the gateway serves."""

from dataclasses import replace

import pytest
from playwright.async_api import Page

from tests.browser.rig import origin_of
from tests.support.snippets import ROOT, snippets
from voicegate.engine.fake.engine import VOICES, FakeEngine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

(LINES,) = [each.code for each in snippets() if each.document == "clients/browser/README.md" and each.language == "js"]
# A page would have these, which the lines speak of.
PAGE = """
    window.button = document.body.appendChild(document.createElement("button"));
    window.meter = document.body.appendChild(document.createElement("meter"));
    window.microphone = {};
    window.answer = (async function* () { yield* ["Hello ", "there. "]; })();
"""


async def test_the_lines_speak(page: Page) -> None:
    engine = FakeEngine()
    names = sorted(path.stem for path in (ROOT / "models/tiny/voices").glob("*.safetensors"))
    engine._voices = [replace(VOICES[0], name=name) for name in names]
    async with running_gateway(GatewayConfig(), engine) as url:
        await page.goto(f"{origin_of(url)}/healthz")
        await page.mouse.click(5, 5)  # sound may start from here on
        await page.evaluate(PAGE)
        code = LINES.replace("./player/player.js", "/player/player.js").replace("wss://gate.example", url)
        await page.add_script_tag(content=f"{code}\nwindow.player = player;", type="module")
        await page.wait_for_function("window.player !== undefined")
        await page.evaluate("button.onclick()")
        assert await page.evaluate("player.contexts.length") == 0, "it was heard to its end"
        await page.evaluate("microphone.onspeech()")
    assert [request.voice in names for request in engine.requests] == [True]
