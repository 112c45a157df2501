"""Jitter buffer and resampler, in the browser but without its clock: what is asked for is what passes."""

from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page

from tests.browser.rig import Samples, floats, snr_db

pytestmark = pytest.mark.asyncio(loop_scope="session")

FADE = 240  # samples
# A playout of 1 kHz samples in milliseconds: `push` and `end` of a context, `render(ms)` keeps what comes out.
PRELUDE = """
    const { Playout } = await import("/player/worklet.js");
    const { Resampler } = await import("/player/resampler.js");
    const { encodeFloats } = await import("/test/harness.js");
    const rateHz = 48000, events = [], output = [];
    const tell = (event) => event.type === "position" || events.push(event);
    const playout = new Playout({ rateHz, startMs: 80, tell });
    const ones = (ms) => new Float32Array(Math.round(ms * 48)).fill(1);
    const push = (context, ms) => playout.push(context, ones(ms));
    const render = (ms) => {
        for (let at = 0; at < ms * 48; at += 128) {
            const block = new Float32Array(128).fill(9); // what was there before must not be heard
            playout.render(block);
            output.push(...block);
        }
    };
"""


async def play(page: Page, script: str) -> tuple[Samples, list[dict[str, Any]]]:
    """Plays, and returns the sound, and the events but for positions."""
    result = await page.evaluate(
        f"async () => {{ {PRELUDE} {script}; return [encodeFloats(Float32Array.from(output)), events] }}"
    )
    return floats(result[0]), result[1]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_it_begins_when_enough_is_there(scratch: Page) -> None:
    output, events = await play(scratch, "playout.open('a'); push('a', 79); render(40); push('a', 2); render(20)")
    assert not output[: 40 * 48].any()
    assert (output[41 * 48 :] == 1).all()
    assert kinds(events) == ["started"]


async def test_it_begins_when_little_is_there_for_long(scratch: Page) -> None:
    output, _ = await play(scratch, "playout.open('a'); render(500); push('a', 60); render(200)")
    start = int(np.flatnonzero(output)[0])
    assert start / 48 == pytest.approx(500 + 120, abs=6)


async def test_what_is_complete_begins_at_once_and_ends_exactly(scratch: Page) -> None:
    output, events = await play(scratch, "playout.open('a'); push('a', 50); playout.end('a', 1000); render(100)")
    assert output.sum() == 1000
    assert (output[:1000] == 1).all()
    assert kinds(events) == ["started", "ended"]
    assert events[-1]["playedMs"] == pytest.approx(1000 / 48)


async def test_silence_needs_no_sound(scratch: Page) -> None:
    _, events = await play(scratch, "playout.open('a'); playout.end('a', 0); render(10)")
    assert kinds(events) == ["ended"]


async def test_an_underrun_fades_and_loses_nothing(scratch: Page) -> None:
    script = "playout.open('a'); push('a', 100); render(300); push('a', 600); playout.end('a', 700 * 48); render(900)"
    output, events = await play(scratch, script)
    assert kinds(events) == ["started", "underrun", "started", "ended"]
    assert events[1]["underruns"] == 1
    assert events[-1]["playedMs"] == 700
    assert np.abs(np.diff(output[: 4800 + FADE])).max() <= 1.01 / FADE, "no click at the gap"
    begin = int(np.flatnonzero(output[4800:])[0]) + 4800
    assert np.abs(np.diff(output[4800 : begin + FADE])).max() <= 1.01 / FADE
    assert np.count_nonzero(output) == pytest.approx(700 * 48, abs=4), "every sample was played, some of them fading"


async def test_a_gap_teaches_how_much_is_needed(scratch: Page) -> None:
    # Dry for 201 ms: 252 ms are wanted from then on.
    script = "playout.open('a'); push('a', 100); render(300); push('a', 240); render(50); push('a', 20); render(100)"
    output, events = await play(scratch, script)
    assert kinds(events) == ["started", "underrun", "started"]
    assert not output[100 * 48 : 350 * 48].any()
    assert output[353 * 48] > 0


async def test_a_speaker_who_paused_is_heard_as_soon_as_at_first(scratch: Page) -> None:
    """An agent's pause says nothing of the network."""
    script = "playout.open('a'); push('a', 100); render(3000); push('a', 79); render(30); push('a', 2); render(20)"
    output, events = await play(scratch, script)
    assert kinds(events) == ["started", "underrun", "started"]
    assert not output[110 * 48 : 3030 * 48].any()
    assert output[3035 * 48] > 0


async def test_late_audio_within_the_fade_is_no_underrun(scratch: Page) -> None:
    script = "playout.open('a'); push('a', 100); render(97); push('a', 100); playout.end('a', 9600); render(150)"
    output, events = await play(scratch, script)
    assert kinds(events) == ["started", "ended"]
    assert output[:9600].min() > 0


async def test_barge_in_fades_within_five_milliseconds(scratch: Page) -> None:
    script = "playout.open('a'); push('a', 5000); render(100); playout.clear('a'); push('a', 500); render(100)"
    output, events = await play(scratch, script)
    cleared = int(np.flatnonzero(output == 0)[0])
    assert cleared / 48 == pytest.approx(100, abs=3 + 5)
    assert not output[cleared:].any()
    assert np.abs(np.diff(output)).max() <= 1.01 / FADE
    assert kinds(events) == ["started"]


async def test_the_name_of_a_cleared_context_may_be_used_again_at_once(scratch: Page) -> None:
    script = """
        playout.open('a'); push('a', 100); render(20); playout.clear('a');
        playout.open('a'); playout.push('a', ones(50).map(() => -1)); playout.end('a', 2400); render(100);
    """
    output, events = await play(scratch, script)
    assert np.count_nonzero(output == -1) == 2400
    assert kinds(events) == ["started", "started", "ended"]


async def test_a_cleared_context_that_waits_leaves_its_turn_to_the_next(scratch: Page) -> None:
    script = """
        for (const name of ['a', 'b', 'c']) playout.open(name);
        push('a', 9); push('b', 100); push('c', 100);
        playout.clear('b'); playout.clear('a'); playout.end('c', 4800); render(110);
    """
    output, events = await play(scratch, script)
    assert (output[:4800] == 1).all()
    assert [(event["type"], event["context"]) for event in events] == [("started", "c"), ("ended", "c")]


async def test_contexts_follow_each_other_without_a_gap(scratch: Page) -> None:
    script = """
        playout.open('a'); playout.open('b');
        playout.push('b', ones(200).map(() => 0.5)); playout.end('b', 9600);
        push('a', 100); playout.end('a', 4799); render(310);
    """
    output, events = await play(scratch, script)
    assert (output[:4799] == 1).all()
    assert (output[4799 : 4799 + 9600] == 0.5).all()
    assert not output[4799 + 9600 :].any()
    assert [(event["type"], event["context"]) for event in events] == [
        ("started", "a"),
        ("ended", "a"),
        ("started", "b"),
        ("ended", "b"),
    ]


async def test_what_was_cut_off_fades_out(scratch: Page) -> None:
    output, events = await play(scratch, "playout.open('a'); push('a', 100); playout.end('a', null); render(150)")
    assert np.count_nonzero(output) == pytest.approx(4800, abs=2)
    assert np.abs(np.diff(output)).max() <= 1.01 / FADE
    assert kinds(events) == ["started", "ended"]


@pytest.mark.parametrize(
    ("from_hz", "to_hz"), [(48_000, 44_100), (24_000, 48_000), (24_000, 44_100), (48_000, 16_000), (48_000, 96_000)]
)
async def test_resampling_in_chunks_of_any_size(scratch: Page, from_hz: int, to_hz: int) -> None:
    script = f"""
        const resampler = new Resampler({from_hz}, {to_hz});
        const wave = Float32Array.from({{ length: {from_hz} }}, (_, n) => Math.sin(2 * Math.PI * 997 * n / {from_hz}));
        for (let at = 0, size = 1; at < wave.length; at += size, size = (size * 7) % 1999) {{
            output.push(...resampler.push(wave.slice(at, at + size)));
        }}
        output.push(...resampler.finish());
    """
    output, _ = await play(scratch, script)
    assert len(output) >= to_hz
    expected = np.sin(2 * np.pi * 997 * np.arange(to_hz) / to_hz).astype(np.float32)
    inner = slice(to_hz // 100, to_hz - to_hz // 100)  # at its ends the wave begins and ends with a step
    assert snr_db(expected[inner], output[inner]) > 70
