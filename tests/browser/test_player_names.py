"""The next context of a name has nothing of the last one, though much of that is still on its way to the page."""

import pytest
from playwright.async_api import Page

from tests.browser.rig import Rig, serving
from tests.browser.test_player_faults import packets_of, play, said_to
from tests.integration.stub_gateway import Peer
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


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


async def test_the_end_of_one_that_was_refused_is_not_that_of_the_next(page: Page) -> None:
    async def refuse_and_speak(peer: Peer) -> None:
        await peer.greet()
        opened = await peer.receive()
        assert isinstance(opened, wire.Open)
        await peer.send(wire.Error("overloaded", "no room", fatal=True, context=opened.context, retry_after_ms=1))
        context = await peer.accept(1)
        while not isinstance(await said_to(peer), wire.End):
            pass
        packets = packets_of()
        await peer.send(
            AudioMessage(1, 0, 0, packets, is_first=True),
            AudioMessage(1, 1, 312 + 24_000, (), is_last=True),
            wire.Done(context, 500, len(packets), wire.Timing()),
        )
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
