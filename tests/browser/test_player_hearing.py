"""Where nothing sounds, or not yet, or no more: nobody waits for ever, and what was heard is told as it was."""

import asyncio
from collections import Counter

import pytest
from playwright.async_api import Page
from websockets.http11 import Request, Response

from tests.browser.conftest import complaints_of
from tests.browser.rig import Rig, origin_of, serving
from tests.browser.test_player_faults import (
    LONG_TONE_S,
    greet_and_speak,
    long_tone,
    packets_of,
    pages,
    play,
    said_to,
    speak,
    speaking,
)
from tests.integration.stub_gateway import Peer, stub_gateway
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAY = """
    const say = (text) => {
        const context = player.open();
        context.say(text);
        context.end();
        return context;
    };
"""


async def speak_and_never_end(peer: Peer) -> None:
    """Half a second of tone, and no answer to anything behind it."""
    await peer.greet()
    await peer.accept()
    await peer.send(AudioMessage(0, 0, 0, packets_of(), is_first=True))
    await peer.socket.wait_closed()


@pytest.mark.parametrize("name", ["worker.js", "link.js", "worklet.js", "opus-decoder.min.js"])
async def test_a_file_that_was_out_of_reach_for_a_moment_is_asked_for_again(page: Page, name: str) -> None:
    asked: Counter[str] = Counter()
    has_failed = asyncio.Event()

    def flaky(request: Request) -> Response | None:
        file = request.path.partition("?")[0].rpartition("/")[2]
        asked[file] += 1
        # The decoder is asked for as the player is made: by the time that a context needs it that may have failed, and
        # the context asks again.
        is_out_of_reach = not has_failed.is_set() if name == "opus-decoder.min.js" else asked[file] == 1
        if file == name and is_out_of_reach:
            response = pages(request)
            assert response is not None
            return Response(503, "Service Unavailable", response.headers, response.body)
        return pages(request)

    async def speak_behind_one_in_vain(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        while not isinstance(await said_to(peer), wire.End):
            pass
        packets = packets_of()
        await peer.send(AudioMessage(0, 0, 0, packets, is_first=True))
        while not isinstance(await said_to(peer), wire.Cancel):
            pass
        has_failed.set()
        await peer.send(wire.Cancelled(context, 500, spoken_text="", remaining_text="One."))
        await speak(peer, 1)
        await peer.socket.wait_closed()

    is_heard_of = name in ("worklet.js", "opus-decoder.min.js")
    async with stub_gateway([speak_behind_one_in_vain if is_heard_of else greet_and_speak], flaky) as url:
        await page.goto(f"{origin_of(url)}/healthz")
        await page.mouse.click(5, 5)
        results = await page.evaluate(
            f"""async () => {{
                const {{ Player }} = await import("/player/player.js");
                const player = new Player({{ decoder: "wasm" }}), results = [];
                {SAY}
                for (const text of ["One.", "Two."]) results.push(await say(text).finished);
                await player.close();
                return results;
            }}"""
        )
    code = {"worklet.js": "no_sound", "opus-decoder.min.js": "bad_audio"}.get(name, "broken")
    assert [(each["reason"], (each["error"] or {}).get("code")) for each in results] == [
        ("failed", code),
        ("done", None),
    ]
    assert all("503" in complaint for complaint in complaints_of(page))
    complaints_of(page).clear()


async def test_an_audio_context_that_is_closed_fails_what_it_was_to_play_and_another_takes_over(page: Page) -> None:
    async with serving() as (origin, engine):
        await page.goto(f"{origin}/healthz")
        await page.mouse.click(5, 5)
        first, second, contexts = await page.evaluate(
            f"""async () => {{
                const {{ Player }} = await import("/player/player.js");
                const {{ once }} = await import("/test/harness.js");
                const player = new Player();
                {SAY}
                const context = say("a".repeat(400));
                await once(context, "started");
                const closed = player.audioContext;
                await closed.close();
                const first = await context.finished;
                const second = await say("word").finished;
                return [first, second, player.audioContext === closed];
            }}"""
        )
        assert engine.num_live == 0
    assert (first["reason"], first["error"]["code"]) == ("failed", "no_sound")
    assert (second["reason"], contexts) == ("done", False)


async def test_a_refusal_is_told_though_no_sound_may_begin(own_page: Page) -> None:
    """No gesture yet: what nothing has come of has nothing to wait for."""

    async def refuse(peer: Peer) -> None:
        await peer.greet()
        while not isinstance(message := await peer.receive(), wire.End):
            pass
        await peer.send(wire.Error("overloaded", "all are in use", fatal=True, context=message.context))
        await peer.accept(1)
        while not isinstance(await said_to(peer), wire.End):
            pass
        await peer.send(AudioMessage(1, 0, 312, (), is_last=True), wire.Done("c1", 0, 0, wire.Timing()))
        await peer.socket.wait_closed()

    await own_page.add_init_script(
        f"""addEventListener("DOMContentLoaded", async () => {{
            const {{ Player }} = await import("/player/player.js");
            const player = new Player();
            {SAY}
            const results = [await say("word").finished, await say("...").finished];
            console.log([...results.map(({{ reason }}) => reason), player.audioContext.state].join(" "));
        }})"""
    )
    async with stub_gateway([refuse], pages) as url:
        async with own_page.expect_console_message(lambda message: "failed" in message.text) as told:
            await own_page.goto(f"{origin_of(url)}/healthz")
        assert (await told.value).text == "failed done suspended"


async def test_while_nothing_sounds_the_gateway_is_told_that_nobody_gets_on(page: Page) -> None:
    reports: list[wire.Playback] = []
    num_s = 2

    async def listen(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        packets = long_tone(num_s)
        await peer.send(AudioMessage(0, 0, 0, packets, is_first=True))
        while len({report.played_ms for report in reports[-3:]}) != 1 or len(reports) < 3:
            if isinstance(message := await peer.receive(), wire.Playback):
                reports.append(message)
        await peer.send(
            wire.Flushed(context, "standing", 0),
            AudioMessage(0, 1, 312 + num_s * 48_000, (), is_last=True),
            wire.Done(context, num_s * 1000, len(packets), wire.Timing()),
        )
        await peer.socket.wait_closed()

    result = await play(
        page,
        [listen],
        SAY
        + """
        const context = say("Hello.");
        await harness.once(context, "started");
        const standing = harness.once(context, "flushed");
        await rig.audioContext.suspend();
        await standing; // as three reports in a row have told
        await rig.audioContext.resume();
        return await context.finished;
        """,
    )
    assert all(report.buffer_ms > 0 for report in reports[-3:])
    assert (result["reason"], result["playedMs"]) == ("done", num_s * 1000)


async def test_an_interrupt_that_nobody_answers_is_told_all_the_same(page: Page) -> None:
    result, waited_ms, thrown, is_listed = await play(
        page,
        [speak_and_never_end],
        SAY
        + """
        const context = say("Hello.");
        await harness.once(context, "position", ({ playedMs }) => playedMs > 100);
        const atMs = performance.now();
        const result = await context.cancel();
        let thrown = null;
        try { player.open({ id: context.id }); } catch (error) { thrown = error.message; }
        return [result, performance.now() - atMs, thrown, player.contexts.length];
        """,
    )
    assert (result["reason"], result["spokenText"], result["remainingText"]) == ("cancelled", "", "Hello.")
    assert 1500 < waited_ms < 10_000
    assert thrown is not None, "to the gateway it is open"
    assert is_listed == 0


async def test_what_was_heard_while_the_page_was_busy_counts(page: Page) -> None:
    playeds_ms: list[int | None] = []

    async def note_cancel(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        await peer.send(AudioMessage(0, 0, 0, long_tone(), is_first=True))
        while not isinstance(message := await said_to(peer), wire.Cancel):
            pass
        playeds_ms.append(message.played_ms)
        await peer.send(wire.Cancelled(context, 500, spoken_text="", remaining_text="Hello."))
        await peer.socket.wait_closed()

    before_ms = await play(
        page,
        [note_cancel],
        SAY
        + """
        const context = say("Hello.");
        await harness.once(context, "position", ({ playedMs }) => playedMs > 60);
        const beforeMs = context.playedMs;
        const untilS = rig.audioContext.currentTime + 0.2; // which counts what sounds, on a busy machine too
        while (rig.audioContext.currentTime < untilS);
        await player.interrupt();
        return beforeMs;
        """,
    )
    assert playeds_ms[0] is not None
    assert before_ms + 150 <= playeds_ms[0] <= 1000 * LONG_TONE_S


async def test_an_end_is_told_when_a_slow_loudspeaker_has_sounded(page: Page) -> None:
    heard_ms, result, interrupted = await play(
        page,
        [speaking(0.5, 3)],
        SAY
        + """
        const setLatency = (value) =>
            Object.defineProperty(rig.audioContext, "outputLatency", { value, configurable: true });
        setLatency(0.4);
        const startMs = performance.now();
        const context = say("Hello.");
        const result = await context.finished;
        const heardMs = performance.now() - startMs;
        setLatency(600); // for its end nobody waits
        const other = say("Again.");
        // All of it has come, and has been played. (Of what was heard nothing is told at such a latency.)
        await harness.once(other, "position", ({ bufferMs }) => other.receivedMs >= 3000 && bufferMs < 40);
        await harness.settle(rig, 1000);
        setLatency(3);
        const interrupted = await other.cancel();
        return [heardMs, result, interrupted];
        """,
    )
    assert heard_ms > 800
    assert (result["reason"], result["playedMs"]) == ("done", 500)
    assert interrupted["reason"] == "cancelled"
    assert 900 < interrupted["playedMs"] < 2990, "what the device still holds was not heard"


async def test_with_nothing_in_hand_before_it_begins_it_has_an_underrun_no_oftener(page: Page) -> None:
    async def speak_late(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        while not isinstance(await said_to(peer), wire.End):
            pass
        await peer.send(AudioMessage(0, 0, 0, packets_of(), is_first=True))
        await peer.send(AudioMessage(0, 1, 312 + 24_000, (), is_last=True), wire.Done(context, 500, 25, wire.Timing()))
        await peer.socket.wait_closed()

    async with stub_gateway([speak_late], pages) as url:
        rig = await Rig.create(page, origin_of(url), awaitsReady=False, startMs=0)
        underruns, refused = await rig.run(
            SAY
            + """
            const context = player.open();
            await new Promise((resolve) => setTimeout(resolve, 300));
            context.say("Hello.");
            context.end();
            const { underruns } = await context.finished;
            const refused = [-1, NaN, "soon", 1e6].filter((startMs) => {
                try { new player.constructor({ startMs }); } catch (error) { return error instanceof TypeError; }
            });
            return [underruns, refused.length];
            """
        )
    assert underruns <= 10, "and not at every look: a busy machine decodes more slowly than it plays"
    assert refused == 4


async def test_what_is_said_in_one_turn_of_the_page_is_one_message(page: Page) -> None:
    kinds: list[str] = []

    async def count_messages(peer: Peer) -> None:
        await peer.greet()
        await peer.accept()
        while not isinstance(message := await said_to(peer), wire.End):
            kinds.append(message.text if isinstance(message, wire.Text) else type(message).__name__)
        packets = packets_of()
        await peer.send(AudioMessage(0, 0, 0, packets, is_first=True), AudioMessage(0, 1, 24_312, (), is_last=True))
        await peer.send(wire.Done("c0", 500, len(packets), wire.Timing()))
        await peer.socket.wait_closed()

    text = await play(
        page,
        [count_messages],
        """
        const context = player.open();
        for (let count = 0; count < 100; count++) context.say("a ");
        context.flush("half");
        context.say("b ");
        await new Promise((resolve) => setTimeout(resolve, 20));
        context.say("c");
        context.end();
        await context.finished;
        return context.text;
        """,
    )
    assert kinds == ["a " * 100, "Flush", "b ", "c"]
    assert text == "a " * 100 + "b c"
