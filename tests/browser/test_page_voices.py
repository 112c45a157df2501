"""The page's gallery and the form that adds a voice, where people are quick, devices fail, and networks drop."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import complaints_of
from tests.browser.rig import origin_of, serving
from tests.browser.test_page import AT_1X, visit
from tests.integration.chaos_proxy import ChaosProxy
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="session")

# `microphones` holds all that were given; each waits for `allow`, as a browser's prompt does.
MICROPHONE = """() => {
    window.microphones = [];
    window.allowed = new Promise((resolve) => (window.allow = resolve));
    navigator.mediaDevices.getUserMedia = async () => {
        const context = new AudioContext();
        const tone = new OscillatorNode(context);
        const heard = context.createMediaStreamDestination();
        tone.connect(heard);
        tone.start();
        microphones.push(heard.stream);
        await allowed;
        return heard.stream;
    };
}"""
LIVE = "microphones.flatMap((each) => each.getTracks()).filter((track) => track.readyState === 'live').length"


async def ask_for_the_microphone(page: Page, *, is_allowed: bool = True) -> None:
    await page.evaluate(MICROPHONE)
    if is_allowed:
        await page.evaluate("allow()")
    await page.get_by_text("Add a voice").click()
    await page.get_by_label("Name").fill("mine")
    await page.get_by_role("button", name="Record", exact=True).click()


async def test_record_is_pressed_twice_while_the_browser_asks(page: Page) -> None:
    async with serving(enrolment=True) as (origin, _), visit(page, origin):
        await ask_for_the_microphone(page, is_allowed=False)
        await page.locator("#record").click()
        await page.evaluate("allow()")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await page.wait_for_timeout(600)  # of the tone
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#added")).to_contain_text("Recorded.")
        assert await page.evaluate(LIVE) == 0, "the microphone is off"


async def test_a_microphone_that_is_pulled_out_leaves_what_it_heard(page: Page) -> None:
    async with serving(enrolment=True) as (origin, _), visit(page, origin):
        await ask_for_the_microphone(page)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await page.wait_for_timeout(600)
        await page.evaluate("microphones[0].getTracks().forEach((track) => track.stop())")
        await page.wait_for_timeout(300)
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("button", name="Play it")).to_be_visible()


async def test_a_recorder_that_cannot_begin_lets_the_microphone_go(page: Page) -> None:
    async with serving(enrolment=True) as (origin, _), visit(page, origin):
        await page.evaluate("void (MediaRecorder.prototype.start = () => { throw new Error('no encoder'); })")
        await ask_for_the_microphone(page)
        await expect(page.locator("#added")).to_have_text("No recording: no encoder")
        assert await page.evaluate(LIVE) == 0
        await expect(page.locator("#record")).to_have_text("Record")


async def test_a_running_recording_is_not_left_out_in_silence(page: Page) -> None:
    async with serving(enrolment=True) as (origin, _), visit(page, origin):
        await ask_for_the_microphone(page)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await page.get_by_role("button", name="Add", exact=True).click()
        await expect(page.locator("#added")).to_have_text("Stop the recording first.")


async def test_add_is_pressed_twice(page: Page, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "anna.wav", np.zeros(4_800), 48_000)
    async with serving(AT_1X, enrolment=True) as (origin, _), visit(page, origin):
        asked: list[Route] = []
        both = asyncio.Event()

        async def hold(route: Route) -> None:
            if route.request.method == "POST":
                asked.append(route)
                await both.wait()
            await route.continue_()

        await page.route("**/v1/voices", hold)
        await page.get_by_text("Add a voice").click()
        await page.get_by_label("Name").fill("anna")
        await page.get_by_label("Recording: 5 to 15").set_input_files(tmp_path / "anna.wav")
        await page.get_by_role("button", name="Add", exact=True).dblclick()
        await expect(page.locator("#added")).to_have_text("The gateway makes the voice…")
        both.set()
        await expect(page.locator("#added")).to_have_text("anna is there.")
        assert len(asked) == 1
        await page.unroute_all(behavior="wait")


async def test_all_channels_of_a_file_are_taken(page: Page, tmp_path: Path) -> None:
    """The gateway takes their average; what only the browser can decode must not be poorer."""
    tone = 0.5 * np.sin(np.arange(48_000) / 20)
    soundfile.write(tmp_path / "right.wav", np.stack([np.zeros(48_000), tone], 1), 48_000)
    recording = (tmp_path / "right.wav").rename(tmp_path / "right.m4a")  # not of the gateway's kinds, by its name
    async with serving(AT_1X, enrolment=True) as (origin, _), visit(page, origin):
        async with page.expect_request("**/v1/voices") as coming:
            await page.get_by_text("Add a voice").click()
            await page.get_by_label("Name").fill("anna")
            await page.get_by_label("Recording: 5 to 15").set_input_files(recording)
            await page.get_by_role("button", name="Add", exact=True).click()
        body = (await coming.value).post_data_buffer or b""
        wav = body[body.index(b"RIFF") :]
        samples = np.frombuffer(wav[44 : 44 + int.from_bytes(wav[40:44], "little")], np.int16) / 32_768
        assert samples == pytest.approx(tone / 2, abs=1e-3)
        await expect(page.locator("#added")).to_have_text("anna is there.")


async def test_a_dropped_connection_leaves_the_focus_in_the_gallery(page: Page) -> None:
    async with serving(AT_1X) as (origin, _):
        proxy = ChaosProxy(origin.replace("http", "ws") + wire.STREAM_PATH, seed=0)
        async with proxy.running(), visit(page, origin_of(proxy.url)):
            hear = page.get_by_role("button", name="Hear drone")
            await hear.focus()
            await page.evaluate("void (window.before = document.activeElement)")
            await proxy.cut()
            await page.evaluate(
                """() => new Promise((resolve) => {
                    const look = () => (before.isConnected ? setTimeout(look, 20) : resolve());
                    look();
                })"""
            )
            await expect(hear).to_be_focused()
    complaints_of(page).clear()  # of the cut


async def test_a_gateway_without_enrolment_says_so_before_somebody_fills_the_form_in(page: Page) -> None:
    async with serving() as (origin, _), visit(page, origin):
        await page.get_by_text("Add a voice").click()
        await expect(page.get_by_text("This gateway takes no voices from the page")).to_be_visible()
        await expect(page.locator("#new-voice")).to_be_hidden()
    async with serving(enrolment=True) as (origin, _), visit(page, origin):
        await page.get_by_text("Add a voice").click()
        await expect(page.get_by_label("Name")).to_be_visible()
        await expect(page.get_by_text("This gateway takes no voices from the page")).to_be_hidden()
