"""The player and the page in a real Firefox, with a loudspeaker, and without one."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.browser.firefox import Firefox, FirefoxPage, firefox, loudspeaker
from tests.browser.rig import reference, serving, snr_db
from tests.browser.test_player import AT_1X, MS_PER_CHARACTER, NUM_TRIES, RATE_HZ, TEXT, barge_in, heard_at_1x
from tests.integration.wire_client import pitch_hz
from tests.support.programs import required
from voicegate.engine.fake.engine import tone_hz

pytestmark = pytest.mark.asyncio(loop_scope="module")


def program() -> str:
    """Debian's, or another one."""
    return shutil.which("firefox") or required("firefox-esr")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def audible(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Firefox]:
    home = tmp_path_factory.mktemp("firefox")
    async with loudspeaker(required("pulseaudio"), home) as sound, firefox(program(), home, sound) as browser:
        yield browser


async def open_page(page: FirefoxPage, origin: str) -> None:
    """The gateway's, and write a few words there."""
    await page.goto(origin)
    await page.until_text("#connection", "^Connected to fake$")
    await page.evaluate("(text) => void (document.getElementById('text').value = text)", TEXT)


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm"])
async def test_every_sample_is_heard_once(audible: Firefox, decoder: str) -> None:
    async with audible.page() as page:
        said, heard = await heard_at_1x(cast(Page, page), decoder=decoder, sampleRate=RATE_HZ)
    assert said["kind"] == decoder
    result = said["result"]
    assert (result["reason"], result["underruns"], result["spokenText"]) == ("done", 0, TEXT)
    assert result["playedMs"] == result["audioMs"] == 22 * MS_PER_CHARACTER
    expected = (await reference(TEXT, AT_1X)).decode()
    assert snr_db(expected, heard) > 60, "libopus and this decoder differ by rounding"
    assert not heard[len(expected) :].any(), "it ends exactly"


async def test_barge_in(audible: Firefox) -> None:
    async with audible.page() as page:
        for _ in range(NUM_TRIES):
            told, heard, _ = await barge_in(cast(Page, page), "webcodecs")
            rest = heard[told["interruptedFrame"] - told["first"] + RATE_HZ * 50 // 1000 :]
            if not rest[: RATE_HZ * 40 // 1000].any():
                break
    assert not rest[: RATE_HZ * 40 // 1000].any(), "silence"
    assert told["result"]["reason"] == "cancelled"
    next_words = rest[np.flatnonzero(rest)[0] :][: 9 * MS_PER_CHARACTER * 48]
    assert pitch_hz(next_words) == pytest.approx(tone_hz(1), abs=5), "nothing of what was interrupted"


@pytest.mark.parametrize(("host", "decoder"), [("127.0.0.1", "webcodecs"), ("insecure.test", "wasm")])
async def test_the_page_speaks_and_never_asks_for_what_may_freeze_it(audible: Firefox, host: str, decoder: str) -> None:
    async with serving(AT_1X, allowed_hosts="insecure.test") as (origin, _), audible.page() as page:
        await open_page(page, origin.replace("127.0.0.1", host))
        await page.evaluate(
            """() => {
                window.reads = 0;
                Object.defineProperty(AudioContext.prototype, "outputLatency", { get: () => ((reads += 1), 0) });
                AudioContext.prototype.getOutputTimestamp = () => ((reads += 1), {});
            }"""
        )
        await page.click("button.primary")
        await page.until_text("#status", "^(Finished|Failed)")
        assert await page.evaluate("() => document.querySelector('.spoken').textContent") == TEXT
        assert await page.evaluate("() => reads") == 0
        await page.until_text("#heard-note", f"decoder {decoder}$")
        await page.goto("about:blank")


async def test_without_an_audio_device_the_page_says_so(tmp_path: Path) -> None:
    nowhere = f"unix:{tmp_path / 'none'}"
    async with firefox(program(), tmp_path, nowhere) as browser, serving() as (origin, _), browser.page() as page:
        await open_page(page, origin)
        await page.click("button.primary")
        await page.until_text("#status", "^Nothing can be heard: the browser finds no audio device that works.$")
        await page.goto("about:blank")
