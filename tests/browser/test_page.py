"""The page at "/", as people use it: by mouse, by keyboard, by ear of a screen reader, on a phone."""

import asyncio
import contextlib
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import orjson
import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import complaints_of
from tests.browser.rig import origin_of, serving
from tests.integration.chaos_proxy import ChaosProxy
from tests.integration.http_client import post
from tests.support.patient_gateway import PATIENT
from tests.support.tiny_engine import tiny_engine
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_1X = Script(chunk_ms=240, real_time_factor=0.2)
# A machine that is busy with something else may hold up the player, which then has an underrun, and the page for a
# word.
NUM_TRIES = 4
LONG = "The quick brown fox jumps over the lazy dog. " * 20


@contextlib.asynccontextmanager
async def visiting(page: Page, script: Script | None = None) -> AsyncIterator[FakeEngine]:
    """The page of a gateway, which is left before the gateway goes; yields the engine."""
    async with serving(script) as (origin, engine), visit(page, origin):
        yield engine


@contextlib.asynccontextmanager
async def visit(page: Page, origin: str) -> AsyncIterator[None]:
    await page.goto(origin)
    await expect(page.get_by_label("Voice", exact=True)).to_be_enabled()
    yield
    await page.goto("about:blank")


async def write(page: Page, text: str) -> None:
    await page.get_by_label("Text", exact=True).fill(text)


async def speak_to_its_end(page: Page, status: str | re.Pattern[str]) -> None:
    await page.evaluate("document.getElementById('status').textContent = ''")  # of what was spoken before
    await page.get_by_role("button", name="Speak").click()
    await expect(page.locator("#status")).to_have_text(status)


async def test_what_is_written_is_spoken_and_shown(page: Page) -> None:
    async with visiting(page, AT_1X) as engine:
        await expect(page.locator("#connection")).to_have_text("Connected to fake")
        await page.get_by_label("Voice", exact=True).select_option("drone")
        await page.get_by_label("Speed").fill("1.5")
        await write(page, "one two three")
        for _ in range(NUM_TRIES):
            await speak_to_its_end(page, "Finished after 0.7 s.")
            if await page.locator("#underruns").text_content() == "0":
                break
        assert {(request.voice, request.speed) for request in engine.requests} == {("drone", 1.5)}
        await expect(page.locator("#first-sound")).to_have_text(re.compile(r"^\d+ ms$"))
        note = re.compile(r"^first packet \d+ ms, gateway \d+ ms$")
        await expect(page.locator("#first-sound-note")).to_have_text(note)
        await expect(page.locator("#underruns")).to_have_text("0")
        await expect(page.locator("#heard")).to_have_text("0.7 s")
        await expect(page.locator(".spoken")).to_have_text("one two three")
        await expect(page.locator("#events li")).to_have_text(
            [re.compile(words) for words in ("on its way", "voice drone", "first packet", "first sound", "Finished")]
        )


async def test_a_token_in_its_address_lets_the_page_in(page: Page) -> None:
    async with serving(AT_1X, api_key="a-key-for-the-page") as (origin, _):
        status, _, body = await post(origin, "/v1/tokens", b"", "Authorization: Bearer a-key-for-the-page")
        assert status == 200
        async with visit(page, f"{origin}/?access_token={orjson.loads(body)['token']}"):
            await expect(page.locator("#connection")).to_have_text("Connected to fake")


async def test_a_page_without_a_good_token_says_what_it_needs(page: Page) -> None:
    async with serving(AT_1X, api_key="a-key-for-the-page") as (origin, _):
        for query in ("", "?access_token=stale"):
            await page.goto(f"{origin}/{query}")
            needed = "The gateway asks for a key: open this page with ?access_token=TOKEN behind its address"
            await expect(page.locator("#connection")).to_have_text(needed)
        await page.goto("about:blank")
    complaints_of(page).clear()  # of the refusals


async def test_a_page_whose_name_was_made_to_resolve_here_reads_nothing(page: Page) -> None:
    async with serving() as (origin, engine):
        rebound = origin.replace("127.0.0.1", "insecure.test")  # the browser resolves it to this machine
        response = await page.goto(f"{rebound}/healthz")
        assert response is not None
        assert response.status == 200, "which tells nothing"
        statuses = await page.evaluate(
            """() => Promise.all([
                fetch("/v1/voices"), fetch("/"), fetch("/v1/audio/speech", { method: "POST", body: '{"input": "x"}' }),
            ].map(async (asked) => (await asked).status))"""
        )
        assert (statuses, engine.requests) == ([403, 403, 403], [])
        told = """() => new Promise((resolve) => {
            const socket = new WebSocket(`ws://${location.host}/v1/stream`);
            socket.onopen = () => resolve("open");
            socket.onerror = () => resolve("refused");
        })"""
        assert await page.evaluate(told) == "refused"
        await page.goto("about:blank")
    complaints_of(page).clear()


async def test_words_are_marked_as_they_are_heard(page: Page) -> None:
    async with visiting(page, AT_1X):
        await write(page, "first second third fourth fifth")
        await page.evaluate(
            """() => {
                const mark = document.querySelector("mark");
                new MutationObserver(() => marks.push(mark.textContent))
                    .observe(mark, { childList: true, characterData: true, subtree: true });
            }"""
        )
        for _ in range(NUM_TRIES):
            await page.evaluate("window.marks = []")
            await speak_to_its_end(page, re.compile("Finished"))
            marks = await page.evaluate("marks.filter((text) => text !== '')")
            # The engine aligns chunk by chunk.
            if (marked := "".join(marks).replace(" ", "")) == "firstsecondthirdfourthfifth":
                break
        assert marked == "firstsecondthirdfourthfifth"
        assert len(marks) > 3


async def test_a_number_is_marked_until_a_next_word_is_told_or_all_is_over(page: Page) -> None:
    """Its end is told before it is known how long it is said for."""
    async with visiting(page):
        marks = await page.evaluate(
            """async () => {
                const { Transcript } = await import("/page/transcript.js");
                const box = document.createElement("p");
                box.innerHTML = "<span></span><mark></mark><span></span>";
                const [transcript, text] = [new Transcript(box), "Pay 1,234,567 now."];
                const told = [
                    { startMs: 100, endMs: 300, start: 0, end: 3 },
                    { startMs: 300, endMs: 700, start: 4, end: 13 },
                ];
                const markedAt = (ms) => (transcript.show(text, told, ms), box.children[1].textContent);
                const marks = [0, 100, 299, 300, 699, 700, 2500].map(markedAt);
                told.push({ startMs: 2600, endMs: 2900, start: 14, end: 18 });
                marks.push(...[2599, 2600].map(markedAt));
                transcript.end(text, text);
                return [...marks, box.children[1].textContent];
            }"""
        )
        assert marks == ["", "Pay", "Pay", *["1,234,567"] * 5, "now.", ""]


async def test_word_by_word(page: Page) -> None:
    async with visiting(page) as engine:
        await page.get_by_label("word by word").check()
        await page.get_by_label("Words a second").fill("40")
        await write(page, "one  two\nthree ")
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#status")).to_have_text(re.compile("Finished"))
        await expect(page.locator(".spoken")).to_have_text("one  two\nthree ", use_inner_text=False)
        assert len(engine.requests) == 1


async def test_by_keyboard_alone(page: Page) -> None:
    async with visiting(page, AT_1X) as engine:
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "text"
        await page.keyboard.press("Control+A")
        await page.keyboard.insert_text(LONG)
        await page.keyboard.press("Control+Enter")
        await expect(page.locator("#status")).to_have_text("Speaking.")
        await expect(page.locator("#heard")).not_to_have_text("0.0 s")
        await page.keyboard.press("Escape")
        await expect(page.locator("#status")).to_have_text(re.compile("Interrupted after"))
        spoken = await page.locator(".spoken").text_content()
        pending = await page.locator(".pending").text_content()
        assert (spoken or "") + (pending or "") == LONG
        await page.get_by_role("button", name="Say the rest").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#status")).to_have_text("Speaking.")
        assert await page.locator("#transcript").text_content() == pending
        await page.get_by_role("button", name="Interrupt").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#status")).to_have_text(re.compile("Interrupted after"))
        assert await page.evaluate("document.activeElement.id") == "interrupt", "the focus stays"
        assert len(engine.cancels) == 2


async def test_speaking_again_interrupts(page: Page) -> None:
    async with visiting(page, AT_1X) as engine:
        await write(page, LONG)
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#status")).to_have_text("Speaking.")
        await write(page, "no")
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#status")).to_have_text("Finished after 0.1 s.")
        assert len(engine.cancels) == 1


async def test_names_for_screen_readers(page: Page) -> None:
    async with visiting(page):
        await page.get_by_text("More").click()
        await page.get_by_label("word by word").check()
        snapshot = await page.locator("body").aria_snapshot()
        for line in (
            'heading "voicegate" [level=1]',
            "status: Connected to fake",
            'form "What to say"',
            'textbox "Text"',
            'combobox "Voice"',
            'combobox "Language"',
            'button "Hear drone"',
            'group "Text arrives"',
            'radio "word by word" [checked]',
            'slider "Words a second"',
            'slider "Speed"',
            'combobox "Decoder"',
            'button "Speak"',
            'region "Live"',
            "status: Nothing said yet.",
            'button "Interrupt" [disabled]',
            'img "Waveform',
            "term: First sound after",
        ):
            assert line in snapshot, snapshot


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_stands_out_from_what_is_behind_it(page: Page, scheme: str) -> None:
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    async with visiting(page):
        colors = await page.evaluate(
            """() => Object.fromEntries(["page", "card", "text", "muted", "accent", "on-accent", "danger"].map(
                (name) => [name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`)]))"""
        )
        pairs = [("text", "page"), ("text", "card"), ("muted", "page"), ("muted", "card"), ("accent", "card")]
        for front, back in [*pairs, ("on-accent", "accent"), ("danger", "card")]:
            assert contrast(colors[front], colors[back]) >= 4.5, (front, back)


def contrast(one: str, other: str) -> float:
    """WCAG 2.1, of two colours like #1c1b22."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(color.strip()[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def test_a_long_text_leaves_the_figures_in_sight_and_the_word_too(page: Page) -> None:
    async with visiting(page, Script(ms_per_character=2)):
        await write(page, LONG * 10)
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#heard")).to_be_in_viewport()
        await expect(page.locator("#timeline")).to_be_in_viewport()
        scrolled = page.locator("#transcript").evaluate
        await page.wait_for_selector("#transcript mark:not(:empty)")
        while not await scrolled("element => element.scrollTop"):
            await expect(page.locator("#transcript mark")).to_be_in_viewport()
        await expect(page.locator("#transcript mark")).to_be_in_viewport()
        await page.get_by_role("button", name="Interrupt").click()


async def test_text_runs_as_its_script_does(page: Page) -> None:
    async with visiting(page):
        await write(page, "\u05e9\u05dc\u05d5\u05dd, hello.")
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#transcript")).to_contain_text("hello")
        for shown in ("#text", "#transcript"):
            assert await page.locator(shown).evaluate("element => getComputedStyle(element).direction") == "rtl"


@pytest.mark.parametrize(("width", "height"), [(320, 568), (393, 780)])
async def test_on_a_phone_the_waveform_and_the_buttons_are_in_sight(page: Page, width: int, height: int) -> None:
    await page.set_viewport_size({"width": width, "height": height})
    async with visiting(page, AT_1X):
        await write(page, LONG)
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#status")).to_have_text("Speaking.")
        for shown in ("#interrupt", "#transcript", "#timeline", "#composer button[type=submit]"):
            await expect(page.locator(shown)).to_be_in_viewport(ratio=1)
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        await page.get_by_role("button", name="Interrupt").click()
        await expect(page.locator("#status")).to_have_text(re.compile("Interrupted"))


async def test_what_is_said_is_saved_and_made_by_commands(page: Page, tmp_path: Path) -> None:
    async with visiting(page) as engine:
        await page.get_by_label("Voice", exact=True).select_option("drone")
        await page.get_by_label("Language").select_option("en")
        await write(page, "It's 5, isn't it?")
        await speak_to_its_end(page, re.compile("Finished"))
        await page.get_by_text("Save it, or make it by code").click()
        for ending, tag in (("wav", b"RIFF"), ("opus", b"OggS")):
            async with page.expect_download() as coming:
                await page.get_by_role("button", name=f"Save as {ending}", exact=False).click()
            download = await coming.value
            assert download.suggested_filename == f"speech.{ending}"
            assert (await asyncio.to_thread(Path(await download.path()).read_bytes)).startswith(tag)
        for program, command in (("sh", "curl"), (sys.executable, "python")):
            text = await page.locator(f"#{command}").text_content()
            made = await asyncio.create_subprocess_exec(program, "-c", str(text), cwd=tmp_path, stderr=PIPE)
            _, said = await made.communicate()
            assert made.returncode == 0, said
            assert (tmp_path / "speech.wav").read_bytes().startswith(b"RIFF")
            (tmp_path / "speech.wav").unlink()
        spoken = {(request.voice, request.language, request.seed) for request in engine.requests}
        assert len(engine.requests) == 5
        assert len(spoken) == 1, "all are the same"


async def test_every_voice_is_heard_by_a_click(page: Page) -> None:
    async with visiting(page, AT_1X) as engine:
        await page.get_by_role("button", name="Hear drone").click()
        await expect(page.locator("#status")).to_have_text(re.compile("Finished"))
        assert [request.voice for request in engine.requests] == ["drone"]
        await expect(page.locator("#transcript")).to_contain_text("This is how I sound")


async def test_a_recording_becomes_a_voice_and_is_heard(page: Page, tmp_path: Path) -> None:
    recording = tmp_path / "anna.wav"
    recording.write_bytes(b"RIFF....WAVE")
    async with serving(AT_1X, enrolment=True, api_key="a-key-for-the-page") as (origin, engine):
        status, _, body = await post(origin, "/v1/tokens", b"", "Authorization: Bearer a-key-for-the-page")
        assert status == 200
        async with visit(page, f"{origin}/?access_token={orjson.loads(body)['token']}"):
            await page.get_by_text("Add a voice").click()
            await page.get_by_label("Name").fill("anna")
            await page.get_by_label("Recording: 5 to 15").set_input_files(recording)
            await page.get_by_role("button", name="Add", exact=True).click()
            await expect(page.locator("#added")).to_contain_text("only a key adds voices")
            complaints_of(page).clear()  # of the refusal
            await page.get_by_label("API key").fill("a-key-for-the-page")
            await page.get_by_role("button", name="Add", exact=True).click()
            await expect(page.locator("#added")).to_have_text("anna is there.")
            await expect(page.locator("#status")).to_have_text(re.compile("Finished"))
            assert [request.voice for request in engine.requests] == ["anna"]
            await expect(page.get_by_role("button", name="Hear anna")).to_be_visible()


async def test_the_microphone_becomes_a_wav(page: Page) -> None:
    """The browser's own generator plays it; the gateway hears what was sent as its form."""
    async with serving(AT_1X, enrolment=True) as (origin, _), visit(page, origin):
        sent: list[bytes] = []

        async def keep(route: Route) -> None:
            sent.append(route.request.post_data_buffer or b"")
            await route.continue_()

        await page.evaluate(
            """() => {
                navigator.mediaDevices.getUserMedia = async () => {
                    const context = new AudioContext();
                    const tone = new OscillatorNode(context);
                    const heard = context.createMediaStreamDestination();
                    tone.connect(heard);
                    tone.start();
                    return heard.stream;
                };
            }"""
        )
        await page.get_by_text("Add a voice").click()
        await page.get_by_label("Name").fill("mine")
        await page.get_by_role("button", name="Record", exact=True).click()
        await page.wait_for_timeout(600)
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("button", name="Play it")).to_be_visible()
        await page.route("**/v1/voices", keep)
        await page.get_by_role("button", name="Add", exact=True).click()
        await expect(page.locator("#added")).to_have_text("mine is there.")
        wav = sent[0][sent[0].index(b"RIFF") :]
        samples = np.frombuffer(wav[44 : 44 + int.from_bytes(wav[40:44], "little")], np.int16)
        assert len(samples) > 0.2 * int.from_bytes(wav[24:28], "little")
        assert np.abs(samples.astype(int)).max() > 10_000
        await expect(page.locator("#status")).to_have_text(re.compile("Finished"))


async def test_a_dropped_connection_is_told_and_speech_goes_on_where_it_was(page: Page) -> None:
    text = "one two three four five six seven eight nine ten "
    async with serving(AT_1X) as (origin, engine):
        proxy = ChaosProxy(origin.replace("http", "ws") + wire.STREAM_PATH, seed=0)
        async with proxy.running(), visit(page, origin_of(proxy.url)):
            await page.evaluate(
                """() => {
                    window.states = [];
                    const shown = document.getElementById("connection");
                    const note = () => states.push(shown.textContent);
                    new MutationObserver(note).observe(shown, { childList: true, characterData: true, subtree: true });
                }"""
            )
            await write(page, text)
            await page.get_by_role("button", name="Speak").click()
            await expect(page.locator("#status")).to_have_text("Speaking.")
            await page.route("**/readyz", lambda _: None)  # never answered: it is told before anybody was asked why
            await proxy.cut()
            await expect(page.locator("#status")).to_have_text(re.compile("^Finished after 2.3 s"))
            await expect(page.locator(".spoken")).to_have_text(text, use_inner_text=False)
            await expect(page.locator("#connection")).to_have_text("Connected to fake")
            assert "Connection lost, connecting again" in await page.evaluate("states")
            assert len(engine.requests) == 1, "nothing is said again"
    complaints_of(page).clear()  # of the cut


@pytest.mark.parametrize(("failure", "reason"), [(None, "no answer"), (500, "HTTP 500")])
async def test_voices_that_are_not_told(page: Page, failure: int | None, reason: str) -> None:
    await page.route("**/v1/voices", lambda route: route.abort() if failure is None else route.fulfill(status=failure))
    async with serving() as (origin, _engine):
        await page.goto(origin)
        told = f"The gateway does not tell its voices ({reason}); reload to ask again."
        await expect(page.locator("#status")).to_have_text(told)
        assert all("Failed to load resource" in complaint for complaint in complaints_of(page))
        complaints_of(page).clear()
        await page.goto("about:blank")


async def test_a_gateway_that_goes_away_is_told(page: Page) -> None:
    async with serving(AT_1X) as (origin, _):
        await page.goto(origin)
        await write(page, LONG)
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#status")).to_have_text("Speaking.")
    await expect(page.locator("#connection")).to_have_text("The gateway cannot be reached, trying again")
    await expect(page.locator("#status")).to_have_text(re.compile("^Failed after"))
    await expect(page.get_by_role("button", name="Say the rest")).to_be_visible()
    await page.goto("about:blank")
    complaints_of(page).clear()  # that nobody answers, or not now


async def test_the_tiny_model_speaks(page: Page) -> None:
    async with running_gateway(PATIENT, tiny_engine()) as url, visit(page, origin_of(url)):
        await write(page, "Yes, of course.")
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#status")).to_have_text(re.compile("^Finished after"))
        await expect(page.locator(".spoken")).to_have_text("Yes, of course.")
