"""Many strangers: who come and go at once, who stay and say nothing, who are gone without a word."""

import asyncio
import contextlib
import time

import pytest

from tests.integration.raw_client import raw_peer, text_frame
from tests.integration.wire_client import Served, WireClient, serving
from tests.soak.keeping import Keep
from tests.soak.memory import held
from voicegate.bench.gateway.crowd import measure
from voicegate.engine.fake.engine import Script
from voicegate.gateway.server.entrance.descriptors import make_room_for
from voicegate.protocol import messages as wire


async def assert_it_serves(other: WireClient) -> None:
    await other.speak("beside", "still here")
    assert (await other.until_done("beside")).packets
    other.heard.clear()


async def come_and_go(served: Served) -> None:
    """A socket, a context, a word, and gone: with a cancel, with a close, or cut."""
    async with raw_peer(served.url) as peer:
        await peer.send(text_frame(wire.Open("a")) + text_frame(wire.Text("a", "hi there. ")))
        await peer.send(text_frame(wire.Cancel("a")))


async def crowd(num_visits: int, visits_per_s: float) -> None:
    script = Script(real_time_factor=0.2)
    async with serving(script) as served, served.client() as other:
        began_s, visits = time.monotonic(), set[asyncio.Task[None]]()
        for number in range(num_visits):
            visits.add(asyncio.create_task(come_and_go(served)))
            if len(visits) >= 100:
                _, visits = await asyncio.wait(visits, return_when=asyncio.FIRST_COMPLETED)
            if number % 1000 == 0:
                await assert_it_serves(other)
                served.engine.requests.clear()
                served.engine.cancels.clear()
            await asyncio.sleep(max(0.0, began_s + number / visits_per_s - time.monotonic()))
        await asyncio.gather(*visits)
        await served.until(lambda engine: engine.num_live == 0)
        await assert_it_serves(other)


async def test_two_hundred_come_and_go() -> None:
    await crowd(200, 1000.0)


@pytest.mark.soak
async def test_a_thousand_a_second_come_and_go_for_a_minute(keep: Keep) -> None:
    """As many as there is CPU for: clients in processes of their own, a server on one core."""
    row = await measure(visits_per_s=1000.0, seconds=60.0)
    keep(**row)
    _, halfway_mib, after_mib = row["server_rss_mib"]  # in the first half allocators find their size
    assert after_mib - halfway_mib < 12.0
    assert row["first_audio_ms"]["num"] > 0
    assert row["visits_failed"] + row["askers_failed"] == 0


@pytest.mark.soak
async def test_a_thousand_a_second_who_wait_for_nobody_for_a_minute(keep: Keep) -> None:
    """More than there is CPU for, as no crowd of enemies waits for its turn: who asks is heard, and nothing is left."""
    row = await measure(visits_per_s=1000.0, visits_at_once=12_000, seconds=60.0)
    keep(**row)
    _, halfway_mib, after_mib = row["server_rss_mib"]
    assert after_mib - halfway_mib < 12.0
    assert row["first_audio_ms"]["num"] > 0
    assert row["askers_failed"] == 0


async def stay_and_say_nothing(num_sockets: int, keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """They answer no ping either, as who lost power: the server finds out by itself, and forgets them."""
    make_room_for(2 * num_sockets)
    ping_s = 0.5 + num_sockets / 200
    monkeypatch.setattr("voicegate.gateway.server.listener._PING_S", ping_s)
    async with serving(max_sockets=num_sockets + 1) as served, served.client() as other:
        before = held()
        async with contextlib.AsyncExitStack() as sockets:
            peers = [await sockets.enter_async_context(raw_peer(served.url)) for _ in range(num_sockets)]
            grown = held().since(before)
            await assert_it_serves(other)
            async with asyncio.timeout(60 + 4 * ping_s):
                for peer in peers:
                    await peer.read_to_end()
            await assert_it_serves(other)
        keep(sockets=num_sockets, kib_a_socket_both_ends=round(grown.num_bytes / num_sockets / 1024, 1))


async def test_a_hundred_who_are_gone_without_a_word(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    await stay_and_say_nothing(100, keep, monkeypatch)


@pytest.mark.soak
async def test_five_thousand_who_are_gone_without_a_word(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    await stay_and_say_nothing(5000, keep, monkeypatch)
