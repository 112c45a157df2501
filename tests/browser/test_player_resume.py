"""Sockets that drop under a player whose gateway resumes: the listener hears nothing of it."""

import asyncio
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page

from tests.browser.conftest import complaints_of
from tests.browser.rig import Rig, origin_of, serving
from tests.browser.test_player_faults import SAY, packets_of, play, said_to
from tests.integration.chaos_proxy import ChaosProxy
from tests.integration.stub_gateway import LIMITS, Peer
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESUMABLE = msgspec.structs.replace(LIMITS, resume_seconds=60)  # no test is of giving up


async def greet(peer: Peer, session: str = "s") -> None:
    await peer.send(wire.Ready(session, "t", "stub", ("hum",), "hum", ("clause",), RESUMABLE))


async def begin_and_drop(peer: Peer) -> None:
    await greet(peer)
    assert await peer.receive() == wire.Ack(0)
    await peer.accept()
    await said_to(peer)  # the text; what follows it is lost
    await peer.send(AudioMessage(0, 0, 0, packets_of(), is_first=True))
    peer.drop()


async def finish(peer: Peer) -> None:
    num_packets = len(packets_of())
    await peer.send(
        AudioMessage(0, 1, 312 + 24_000, (), is_last=True), wire.Done("c0", 500, num_packets, wire.Timing())
    )
    await peer.socket.wait_closed()


async def test_what_was_lost_with_a_socket_is_sent_again(page: Page) -> None:
    async def resume(peer: Peer) -> None:
        assert peer.socket.request is not None
        assert peer.socket.request.path.endswith("?session=s"), "for balancers"
        await greet(peer, "another")
        asked = await peer.receive()
        assert isinstance(asked, wire.Resume)
        assert (asked.session, asked.token) == ("s", "t")
        if asked.received == 1:  # `opened`; the audio went down with the socket
            await peer.send(wire.Resumed("s", received=2), AudioMessage(0, 0, 0, packets_of(), is_first=True))
        else:
            assert asked.received == 2
            await peer.send(wire.Resumed("s", received=2))
        assert isinstance(await said_to(peer), wire.End)
        await finish(peer)

    result = await play(page, [begin_and_drop, resume], SAY + "return await say('Hello there.')")
    assert (result["reason"], result["audioMs"]) == ("done", 500)
    assert 500 <= result["playedMs"] < 520, "what fills the last packet is heard where its end is told late"


async def test_a_session_that_cannot_be_resumed_fails_its_contexts(page: Page) -> None:
    async def refuse(peer: Peer) -> None:
        await greet(peer)
        assert isinstance(await peer.receive(), wire.Resume)
        await peer.send(wire.Error("cannot_resume", "too late", fatal=False))
        await peer.socket.wait_closed()

    async def begin_anew(peer: Peer) -> None:
        await greet(peer, "next")
        assert await peer.receive() == wire.Ack(0)
        await peer.socket.wait_closed()

    result = await play(
        page,
        [begin_and_drop, refuse, begin_anew],
        """
        const context = player.open();
        context.say("Hello there.");
        const failed = await harness.once(context, "failed");
        await harness.once(player, "connection", ({ state }) => state === "ready");
        return failed;
        """,
    )
    assert result["code"] == "connection_lost"
    assert "too late" in result["message"]


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm"])
async def test_a_listener_hears_nothing_of_a_bad_network(page: Page, decoder: str) -> None:
    pieces = ["Nobody who listens notices what becomes of the wire. ", "It is cut, and cut again."]
    script = Script(real_time_factor=0.3, chunk_ms=60, max_lead_ms=60_000)
    async with serving(script) as (origin, engine):
        proxy = ChaosProxy(origin.replace("http", "ws") + wire.STREAM_PATH, seed=0)
        async with proxy.running():
            rig = await Rig.create(page, origin_of(proxy.url), decoder=decoder)
            speaking = asyncio.create_task(
                rig.run(
                    """
                    const states = [], pieces = argument;
                    player.addEventListener("connection", ({ detail }) => states.push(detail.state));
                    const context = player.open();
                    for (const piece of pieces) {
                        context.say(piece);
                        await harness.once(player, "connection", ({ state }) => state === "lost");
                    }
                    context.end();
                    const { reason, audioMs, playedMs } = await context.finished;
                    const words = context.alignment.map(({ text }) => text);
                    // The last cut may come when all was sent: it is heard while the next connection is made.
                    if (states.at(-1) !== "ready") {
                        await harness.once(player, "connection", ({ state }) => state === "ready");
                    }
                    return { reason, audioMs, playedMs, states, words, kind: player.decoder };
                    """,
                    pieces,
                )
            )
            await engine.until(lambda: engine.num_live == 1)
            while engine.num_live:
                await asyncio.sleep(0.2)  # of speech
                await proxy.cut()
            heard: dict[str, Any] = await speaking
    num_sounding = sum(
        map(str.isalnum, "Nobody who listens notices what becomes of the wire. It is cut, and cut again.")
    )
    assert heard["kind"] == decoder
    assert (heard["reason"], heard["audioMs"], heard["playedMs"]) == ("done", num_sounding * 60, num_sounding * 60)
    assert sum(map(str.isalnum, "".join(heard["words"]))) == num_sounding
    assert heard["states"].count("lost") >= 2
    assert heard["states"][-1] == "ready"
    assert len(engine.requests) == 1
    complaints_of(page).clear()  # of the browser, about sockets
