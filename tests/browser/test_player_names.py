"""The next context of a name has nothing of the last one, though much of that is still on its way to the page."""

import pytest
from playwright.async_api import Page

from tests.browser.rig import Rig, serving
from tests.browser.test_player_faults import SAY, play, said_to, speak
from tests.integration.stub_gateway import Peer
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_was_heard_of_the_last_is_not_heard_of_the_next(page: Page) -> None:
    async with serving(Script(real_time_factor=0.0)) as (origin, _):
        rig = await Rig.create(page, origin)
        first, events = await rig.run(
            """
            const say = (text) => {
                const context = player.open({ id: "answer" });
                context.say(text);
                return context;
            };
            const first = say("some words that sound for a while");
            first.end();
            await harness.once(first, "position", ({ playedMs }) => playedMs > 400);
            const busyUntilMs = performance.now() + 300; // what sounds meanwhile is told behind this turn of the page
            while (performance.now() < busyUntilMs);
            first.cancel();
            const interrupted = await first.finished;
            const next = say("");
            const events = [];
            for (const type of ["started", "position", "underrun", "ended"]) {
                next.addEventListener(type, ({ detail }) => events.push([type, detail.playedMs]));
            }
            await new Promise((resolve) => setTimeout(resolve, 300));
            return [interrupted, events];
            """
        )
    assert first["reason"] == "cancelled"
    assert events == []


async def test_what_ends_before_a_slow_loudspeaker_has_sounded_ends_once(scratch: Page) -> None:
    """And reports no more: by then its name may be another's."""
    told = await scratch.evaluate(
        """async () => {
            const { Context } = await import("/player/context.js");
            const told = [];
            const host = { send: (verb) => told.push(verb), cancel() {}, latencyMs: () => 200, nowMs: () => 0 };
            const context = new Context("answer", host);
            context.addEventListener("finished", ({ detail }) => told.push(detail.reason));
            context.hear({ type: "done", audio_ms: 500 });
            context.play({ type: "ended", playedMs: 500, bufferMs: 0, underruns: 0, atMs: 0 });
            context.break("no_sound", "the AudioContext was closed");
            await new Promise((resolve) => setTimeout(resolve, 400));
            return told;
        }"""
    )
    assert told == ["failed"]


async def test_the_end_of_one_that_was_refused_is_not_that_of_the_next(page: Page) -> None:
    async def refuse_and_speak(peer: Peer) -> None:
        await peer.greet()
        opened = await peer.receive()
        assert isinstance(opened, wire.Open)
        await peer.send(wire.Error("overloaded", "no room", fatal=True, context=opened.context, retry_after_ms=1))
        await speak(peer, 1)
        await peer.socket.wait_closed()

    refused, result, num_ends = await play(
        page,
        [refuse_and_speak],
        """
        const open = () => player.open({ id: "answer" });
        const first = open();
        const refused = await first.finished;
        const next = open();
        let numEnds = 0;
        next.addEventListener("ended", () => (numEnds += 1));
        await new Promise((resolve) => setTimeout(resolve, 200));
        next.say("Hello there.");
        next.end();
        return [refused.error.code, await next.finished, numEnds];
        """,
    )
    assert refused == "overloaded"
    assert (result["reason"], result["playedMs"], num_ends) == ("done", 500, 1)


async def test_a_cancel_that_crossed_an_end_harms_nothing_of_the_next(page: Page) -> None:
    async def end_before_the_cancel_is_read(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        while not isinstance(await said_to(peer), wire.Cancel):
            pass
        await peer.send(wire.Done(context, 0, 0, wire.Timing()))
        opened = await said_to(peer)
        assert isinstance(opened, wire.Open)
        assert opened.context == context
        await peer.send(
            wire.Error("unknown_context", "no such context", fatal=False, context=context),
            wire.Opened(context, 1, "hum", opened.format, 24_000, 312),
        )
        while not isinstance(await said_to(peer), wire.End):
            pass
        await peer.send(wire.Done(context, 0, 0, wire.Timing()))
        await peer.socket.wait_closed()

    reasons = await play(
        page,
        [end_before_the_cancel_is_read],
        """
        const first = player.open({ id: "answer" });
        await harness.once(first, "opened");
        const interrupted = await first.cancel();
        const next = player.open({ id: "answer" });
        next.say("Hello there.");
        next.end();
        return [interrupted.reason, (await next.finished).reason];
        """,
    )
    assert reasons == ["cancelled", "done"]


async def test_a_name_is_taken_until_the_gateway_has_ended_what_failed(page: Page) -> None:
    """Or the end of the one would be taken for that of the other."""

    async def refuse_text_and_speak(peer: Peer) -> None:
        await peer.greet()
        first = await peer.accept()
        assert isinstance(await said_to(peer), wire.Text)
        await peer.send(wire.Error("bad_message", "not that", fatal=False, context=first))
        while not isinstance(await said_to(peer), wire.Cancel):
            pass
        await speak(peer, 1)
        await peer.send(wire.Cancelled(first, 0, "", ""))
        await speak(peer, 2)
        await speak(peer, 3)
        await peer.socket.wait_closed()

    code, thrown, reasons = await play(
        page,
        [refuse_text_and_speak],
        SAY
        + """
        const first = player.open({ id: "answer" });
        first.say("Hello");
        const { error } = await first.finished;
        let thrown = null;
        try { player.open({ id: "answer" }) } catch (refusal) { thrown = refusal.message }
        const reasons = [(await say("Another.")).reason, (await say("And another.")).reason];
        const again = player.open({ id: "answer" });
        again.say("Again.");
        again.end();
        return [error.code, thrown, [...reasons, (await again.finished).reason]];
        """,
    )
    assert (code, thrown) == ("bad_message", "context answer is open already")
    assert reasons == ["done"] * 3
