"""Heard audio: recorded after the player, sample by sample, and held against the gateway's."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page

from tests.browser.rig import Rig, Samples, reference, serving, snr_db
from tests.integration.wire_client import pitch_hz
from voicegate import clients
from voicegate.engine.fake.engine import FakeEngine, Script, tone_hz

pytestmark = pytest.mark.asyncio(loop_scope="session")

RATE_HZ = 48_000
# Audio comes faster than it is played, then is held to real time by the lead that the player asks for.
AT_1X = Script(chunk_ms=240, real_time_factor=0.2)
MS_PER_CHARACTER = AT_1X.ms_per_character
TEXT = "one two three four five six"
NEVER_ENDING = "word " * 200
# A machine that is busy with something else may hold up the player itself, which then has an underrun, or is silent
# later.
NUM_TRIES = 4

SPEAK = """
    const context = player.open({ leadMs: 800 });
    const log = harness.logOf(context);
    context.say(argument);
    context.end();
    const result = await context.finished;
    return { result, log, kind: player.decoder };
"""


def resampled(samples: Samples, to_hz: int) -> Samples:
    """In one go, by the spectrum."""
    num_out = len(samples) * to_hz // RATE_HZ
    spectrum = np.fft.rfft(samples)[: num_out // 2 + 1]
    return (np.fft.irfft(spectrum, num_out) * num_out / len(samples)).astype(np.float32)


async def heard_at_1x(page: Page, **options: Any) -> tuple[dict[str, Any], Samples]:
    """SPEAK's return value, and the sound: of the first try without an underrun, or of the last."""
    for _ in range(NUM_TRIES):
        async with serving(AT_1X) as (origin, _engine):
            rig = await Rig.create(page, origin, **options)
            said: dict[str, Any] = await rig.run(SPEAK, TEXT)
            heard = await rig.recording()
            await page.goto("about:blank")  # it would complain of a gateway that goes
        if said["result"]["underruns"] == 0:
            break
    return said, heard


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm"])
async def test_at_1x_every_sample_is_heard_once(page: Page, decoder: str) -> None:
    said, heard = await heard_at_1x(page, decoder=decoder, sampleRate=RATE_HZ)
    assert said["kind"] == decoder
    assert [event["type"] for event in said["log"]] == ["opened", "started", "ended", "finished"]
    result = said["result"]
    assert (result["reason"], result["underruns"], result["spokenText"]) == ("done", 0, TEXT)
    assert result["playedMs"] == result["audioMs"] == 22 * MS_PER_CHARACTER
    expected = (await reference(TEXT, AT_1X)).decode()
    assert snr_db(expected, heard) > 60, "libopus and this decoder differ by rounding"
    assert not heard[len(expected) :].any(), "it ends exactly"


async def test_at_the_devices_own_rate(page: Page) -> None:
    said, heard = await heard_at_1x(page, sampleRate=44_100)
    assert said["result"]["underruns"] == 0
    expected = resampled((await reference(TEXT, AT_1X)).decode(), 44_100)
    assert snr_db(expected[441:-441], heard[441:]) > 40
    assert not heard[len(expected) + 1 :].any()


async def test_uncompressed(page: Page) -> None:
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin, sampleRate=24_000)
        speak = SPEAK.replace("leadMs: 800", "format: { codec: 'pcm_s16le' }")
        await rig.run(speak, "abc")
        heard = await rig.recording()
    times = np.arange(3 * MS_PER_CHARACTER * 24) / 24_000
    tone = (0.4 * np.sin(2 * np.pi * tone_hz(0) * times)).astype(np.float32)
    assert snr_db(tone[1:], heard) > 80, "its first sample is 0"


async def barge_in(page: Page, decoder: str) -> tuple[dict[str, Any], Samples, FakeEngine]:
    """An interruption, and words after it: messages, sound, and the engine."""
    async with serving(AT_1X) as (origin, engine):
        rig = await Rig.create(page, origin, decoder=decoder, sampleRate=RATE_HZ)
        told: dict[str, Any] = await rig.run(
            """
            const context = player.open();
            context.say(argument);
            await harness.once(context, "position", ({ playedMs }) => playedMs > 300);
            const first = await harness.frameOf(rig), interruptedFrame = harness.frameNow(rig);
            const [result] = await player.interrupt();
            const isTaken = context.say("no more");
            await harness.settle(rig, 100);
            const silent = rig.blocks.length;
            const next = player.open();
            next.say("next words");
            next.end();
            await next.finished;
            return { first, interruptedFrame, result, isTaken, silent, kind: player.decoder };
            """,
            NEVER_ENDING,
        )
        heard = await rig.recording()
        await page.goto("about:blank")
        return told, heard, engine


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm"])
async def test_barge_in_is_silent_at_once_and_the_next_words_are_heard(page: Page, decoder: str) -> None:
    within = RATE_HZ * 50 // 1000
    for _ in range(NUM_TRIES):
        told, heard, engine = await barge_in(page, decoder)
        interrupted = told["interruptedFrame"] - told["first"]
        first_words, rest = heard[: interrupted + within], heard[interrupted + within :]
        silence = rest[: RATE_HZ * 40 // 1000]
        if not silence.any():
            break
    assert not silence.any()
    result = told["result"]
    assert (result["reason"], told["isTaken"], told["kind"]) == ("cancelled", False, decoder)
    (_, played_ms), *_ = engine.cancels
    assert played_ms is not None
    assert played_ms == round(result["playedMs"]) >= 300
    assert len(result["spokenText"].replace(" ", "")) == played_ms // MS_PER_CHARACTER
    assert result["spokenText"] + result["remainingText"] == NEVER_ENDING
    assert np.abs(first_words[: interrupted - within]).max() > 0.3
    assert np.abs(np.diff(first_words)).max() < 0.1, "no click"
    next_words = rest[np.flatnonzero(rest)[0] :][: 9 * MS_PER_CHARACTER * 48]
    assert pitch_hz(next_words) == pytest.approx(tone_hz(1), abs=5), "nothing of what was interrupted"


async def test_contexts_are_heard_in_the_order_in_which_they_were_opened(page: Page) -> None:
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin, sampleRate=RATE_HZ)
        await rig.run(
            """
            const [first, second] = [player.open(), player.open()];
            second.say("second");
            second.end();
            await harness.once(second, "received");
            first.say("first");
            first.end();
            await Promise.all([first.finished, second.finished]);
            """
        )
        heard = await rig.recording()
    cut = 5 * MS_PER_CHARACTER * 48
    # The engine counts them by their first text.
    assert pitch_hz(heard[:cut]) == pytest.approx(tone_hz(1), abs=5)
    assert pitch_hz(heard[cut : cut + 6 * MS_PER_CHARACTER * 48]) == pytest.approx(tone_hz(0), abs=5)


async def test_the_types_name_what_there_is(page: Page) -> None:
    types = (Path(clients.__file__).parent / "browser/player/player.d.ts").read_text()
    members = {
        name: re.findall(r"^  (?:readonly )?(\w+)[(:<]", types.partition(f"class {name} ")[2].partition("\n}")[0], re.M)
        for name in ("Player", "Context")
    }
    assert all(len(names) > 8 for names in members.values())
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin)
        missing = await rig.run(
            """
            const objects = { Player: player, Context: player.open() };
            return Object.entries(argument).flatMap(([name, members]) =>
                members.filter((member) => member !== "constructor" && !(member in objects[name])));
            """,
            members,
        )
    assert missing == []
