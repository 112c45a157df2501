"""A session that goes on after its socket: what a client gets that comes back, and what one gets that must not."""

import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.raw_client import raw_connection, text_frame
from tests.integration.resuming_client import ResumingClient, resuming, wait_for_nobody
from tests.integration.wire_client import Running, Served, running, serving
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.gateway.auth.key_file import add_key, remove_key
from voicegate.gateway.auth.keyring import Key, digest_of
from voicegate.gateway.server.conversations.binding import Binding
from voicegate.gateway.session.quota import Holding
from voicegate.gateway.session.stall import StallWatch
from voicegate.protocol import codec
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

# Made as fast as it is played at 20 times the speed, so that there is more to come when the socket drops.
SLOWLY = Script(real_time_factor=0.05, chunk_ms=40, max_lead_ms=60_000)
TEXT = "Nobody who listens to this should notice anything, whatever becomes of the wire between."
PCM = wire.Format(codec="pcm_s16le")


async def uncut(text: str, script: Script = SLOWLY) -> ResumingClient:
    async with serving(script) as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a"), wire.Text("a", text), wire.End("a"))
        await client.until(wire.Done)
        return client


async def until_it_speaks(client: ResumingClient) -> None:
    """`TEXT`, and may say more."""
    await client.send(wire.Open(context="a"), wire.Text("a", TEXT))
    await client.until(AudioMessage)


@contextlib.asynccontextmanager
async def heard_whole() -> AsyncIterator[tuple[Served, ResumingClient]]:
    """A client to disturb while it hears `TEXT`; then it has what one gets whose socket does not drop."""
    async with serving(SLOWLY) as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a"), wire.Text("a", TEXT), wire.End("a"))
        yield served, client
        while not is_done(client):
            await client.receive()
        assert without_timing(client.frames) == without_timing((await uncut(TEXT)).frames)
        assert served.engine.cancels == []


def is_done(client: ResumingClient) -> bool:
    last = client.frames[-1] if client.frames else b""
    return isinstance(last, str) and isinstance(codec.decode_server(last), wire.Done)


def without_timing(frames: list[str | bytes]) -> list[object]:
    """Timings are of the clock."""
    read = [frame if isinstance(frame, bytes) else codec.decode_server(frame) for frame in frames]
    return [
        (message.context, message.audio_ms, message.packets) if isinstance(message, wire.Done) else message
        for message in read
    ]


async def refused(client: ResumingClient, code: str, match: str) -> None:
    error = await client.until(wire.Error)
    assert (error.code, error.fatal) == (code, False)
    assert match in error.message


async def until_held(running: Running, holding: Holding, num_held: int) -> None:
    """There is nothing on the wire that could be waited for."""
    await until(lambda: running.gateway.quotas.in_all(holding) == num_held)


# --- coming back ------------------------------------------------------------------------------------------


async def test_every_byte_comes_once_while_generation_goes_on() -> None:
    async with heard_whole() as (served, client):
        for _ in range(3):
            await client.until(AudioMessage)
        client.drop()
        await served.until(lambda engine: engine.num_live == 0)
        assert (await client.come_back()).received == 3


async def test_what_was_sent_and_never_read_comes_again() -> None:
    async with heard_whole() as (_, client):
        await client.until(wire.Done)
        del client.frames[2:]
        client.drop()
        await client.come_back()


async def test_a_socket_may_drop_again_while_what_was_missed_is_sent() -> None:
    async with heard_whole() as (_, client):
        while not is_done(client):
            for _ in range(3):
                if not is_done(client):
                    await client.receive()
            client.drop()
            await client.come_back()


async def test_the_client_learns_which_of_its_messages_came() -> None:
    async with serving() as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a"), wire.Text("a", "One. "), wire.Ping(1), wire.Playback("a", 0))
        await client.websocket.send("what is this?")
        await client.until(wire.Error)
        client.drop()
        assert (await client.come_back()).received == 3, "an open, a text, and what was none; reports do not count"
        await client.send(wire.Text("a", "Two."), wire.End("a"))
        await client.until(wire.Done)
        assert client.packets == (await uncut("One. Two.", Script())).packets


async def test_acks_come_to_a_client_that_acknowledges() -> None:
    async with serving() as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a"), *[wire.Text("a", "")] * 31, wire.Text("a", "x" * 20_000))
        assert [(await client.until(wire.Ack)).received for _ in range(2)] == [32, 33]


async def test_a_server_of_any_name_finds_its_sessions() -> None:
    """The longest that Kubernetes gives a pod begins each of its sessions' ids."""
    async with running(FakeEngine(), instance="g" * 63) as running_, resuming(running_.gateway.url) as client:
        await client.send(wire.Open(context="a"))
        await client.until(wire.Opened)
        client.drop()
        await client.come_back()


async def test_a_context_ends_while_nobody_is_there() -> None:
    async with running(FakeEngine(SLOWLY), context_idle_s=1) as running_, resuming(running_.gateway.url) as client:
        await client.send(wire.Open(context="a"))
        await client.until(wire.Opened)
        client.drop()
        await until_held(running_, Holding.CONTEXT, 0)
        await client.come_back()
        error = await client.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("expired", "a", True)


async def test_a_cancel_is_heard_on_the_next_socket() -> None:
    async with serving(SLOWLY) as served, resuming(served.url) as client:
        await until_it_speaks(client)
        client.drop()
        await client.come_back()
        num_before = len(client.packets)
        await client.send(wire.Cancel("a"))
        cancelled = await client.until(wire.Cancelled)
        assert cancelled.spoken_text + cancelled.remaining_text == TEXT
        assert len(client.packets) - num_before < 100, "what was made and not sent is dropped"


async def test_paced_audio_goes_on() -> None:
    pace = wire.Pace(burst_ms=200)
    async with serving() as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a", pace=pace), wire.Text("a", "Nobody hears it."), wire.End("a"))
        await client.until(AudioMessage)
        client.drop()
        await client.come_back()
        await client.until(wire.Done)
        assert client.packets == (await uncut("Nobody hears it.", Script())).packets


async def test_a_session_on_a_live_socket_is_taken_over() -> None:
    async with heard_whole() as (_, client):
        await client.until(AudioMessage)
        old = client.websocket
        await client.come_back()
        await client.until(wire.Done)
        await old.wait_closed()
        assert (old.close_code, old.close_reason) == (1008, "taken_over")


async def test_who_asks_for_its_session_with_the_handshake_is_answered() -> None:
    """The request is there before anything of the new socket runs: before `ready` even is made."""
    async with serving() as served, resuming(served.url) as client, raw_connection(served.url) as late:
        await client.send(wire.Open(context="a"))
        await client.until(wire.Opened)
        await late.shake_hands(served.url, text_frame(wire.Resume(client.ready.session, client.ready.token)))
        answer = await late.read_until(b'"type":"opened"')
        assert b'"type":"ready"' in answer.partition(b'"type":"resumed"')[0]
        assert b'"type":"resumed"' in answer.partition(b'"type":"opened"')[0]


async def test_a_socket_that_takes_nothing_is_cut_and_its_session_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"write_stall_s": 0.2, "resume_session_bytes": 32 * 1024 * 1024}
    options = {"max_queue": 1, "ping_interval": None}
    async with running(FakeEngine(), **settings) as running_, resuming(running_.gateway.url, **options) as client:
        await client.send(wire.Open(context="a", format=PCM), wire.Text("a", "x" * 4000), wire.End("a"))
        await client.until(wire.Opened)
        await until_held(running_, Holding.ABSENT, 1)
        # It reads now, but not while a busy machine lets neither end run.
        monkeypatch.setattr("voicegate.gateway.server.listener.StallWatch", lambda _limit_s: StallWatch(PATIENCE_S))
        await client.come_back()
        await client.until(wire.Done)
        assert sum(map(len, client.packets)) == 4000 * 60 * 48


async def test_two_sockets_may_fight_and_nothing_is_lost() -> None:
    async with heard_whole() as (served, client):
        await client.until(AudioMessage)
        rival = ResumingClient(served.url)
        rival.ready, rival.frames = client.ready, client.frames
        for fighter in (rival, client) * 10:
            await fighter.come_back()
        await rival.leave()


async def test_other_contexts_and_new_ones_go_on_in_the_same_session() -> None:
    async with serving() as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a"))
        await client.until(wire.Opened)
        client.drop()
        await client.come_back()
        await client.send(wire.Open(context="a"))
        assert (await client.until(wire.Error)).code == "context_exists"
        await client.send(wire.Open(context="b"))
        assert (await client.until(wire.Opened)).handle == 1


# --- not coming back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not wanted"])
async def test_who_closes_or_never_acknowledged_has_everything_cancelled_at_once(is_told: bool) -> None:
    async with serving(SLOWLY) as served:
        client = ResumingClient(served.url)
        if is_told:
            await client.connect()
        else:
            await client.dial()
        await until_it_speaks(client)
        if is_told:
            await client.websocket.close()
        await client.leave()
        await served.until(lambda engine: len(engine.cancels) == 1)


async def test_forged_and_impossible_requests_change_nothing() -> None:
    async with serving(SLOWLY) as served, resuming(served.url) as client, resuming(served.url) as other:
        await client.send(wire.Open(context="a"), wire.Text("a", TEXT), wire.End("a"))
        await client.until(AudioMessage)
        client.drop()
        await client.dial()
        await client.until(wire.Ready)
        num_frames = len(client.frames)
        await client.ask(token="x" * 128)
        await refused(client, "cannot_resume", "not the token of that session")
        await client.ask(token="é" * 10)
        await refused(client, "cannot_resume", "not the token of that session")
        await client.ask(token=other.ready.token)
        await refused(client, "cannot_resume", "not the token of that session")
        await client.ask(session="f" * 16)
        await refused(client, "cannot_resume", "no session 'ffffffffffffffff' waits here")
        await client.ask(received=2**62)
        await refused(client, "cannot_resume", "`received` is 4611686018427387904")
        await client.websocket.send('{"type":"resume","session":"s","token":"t","received":-1}')
        await refused(client, "bad_message", "received")
        del client.frames[num_frames:]
        await client.ask()
        await client.until(wire.Resumed)
        await client.until(wire.Done)


async def test_resume_comes_first_or_not_at_all() -> None:
    async with serving() as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a"))
        await client.until(wire.Opened)
        await client.ask()
        await refused(client, "illegal_in_state", "first message")
        client.drop()
        await client.come_back()
        await client.ask()
        await refused(client, "illegal_in_state", "first message")


async def test_an_ack_of_what_was_never_sent_is_refused() -> None:
    async with serving() as served, resuming(served.url) as client:
        await client.send(wire.Ack(10**18))
        await refused(client, "bad_message", "ack of 1000000000000000000 messages, and 0 were sent")


async def test_what_was_acknowledged_is_not_kept() -> None:
    async with serving() as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a"), wire.Text("a", "One."), wire.Flush("a"))
        await client.until(wire.Flushed)
        await client.send(wire.Ack(len(client.frames)), wire.Ping(1))
        await client.until(wire.Pong)
        client.drop()
        await client.dial()
        await client.ask(received=1)
        await refused(client, "cannot_resume", "after message 1 is not kept any more")


async def test_time_runs_out() -> None:
    async with serving(SLOWLY, resume_s=1) as served, resuming(served.url) as client:
        assert client.ready.limits.resume_seconds == 1
        await until_it_speaks(client)
        client.drop()
        await served.until(lambda engine: len(engine.cancels) == 1)
        await client.dial()
        await client.ask()
        await refused(client, "cannot_resume", "its 1 s are over")


async def test_a_server_may_resume_nothing() -> None:
    async with serving(SLOWLY, resume_s=0) as served, resuming(served.url) as client:
        assert (client.ready.token, client.ready.limits.resume_seconds) == ("", 0)
        await client.send(wire.Resume("s", "t"))
        await refused(client, "unsupported", "does not resume sessions")
        await until_it_speaks(client)
        client.drop()
        await served.until(lambda engine: len(engine.cancels) == 1)


# --- bounds and accounts ----------------------------------------------------------------------------------


async def test_a_client_that_misses_too_much_is_given_up() -> None:
    async with serving(Script(), resume_session_bytes=64 * 1024) as served, resuming(served.url) as client:
        await client.send(wire.Open(context="a", format=PCM), wire.Text("a", "x" * 1000), wire.End("a"))
        await client.until(AudioMessage)
        client.drop()
        await served.until(lambda engine: len(engine.cancels) == 1)
        await client.dial()
        await client.ask()
        await refused(client, "cannot_resume", "waits here")


async def test_all_together_keep_no_more_than_they_may() -> None:
    bounds = {"resume_session_bytes": 10_000_000, "resume_total_bytes": 500_000}
    async with serving(**bounds) as served, resuming(served.url) as small, resuming(served.url) as large:
        await small.send(wire.Open(context="a"), wire.Text("a", TEXT), wire.End("a"))
        await small.until(AudioMessage)
        small.drop()
        await served.until(lambda engine: engine.num_live == 0)
        await large.send(wire.Open(context="a", format=PCM), wire.Text("a", "x" * 1000), wire.End("a"))
        await large.until(AudioMessage)
        large.drop()
        await served.until(lambda engine: len(engine.cancels) == 1)
        await small.come_back()
        await small.until(wire.Done)


async def test_a_client_that_is_away_holds_its_contexts_and_no_socket() -> None:
    async with running(FakeEngine(SLOWLY)) as running_, resuming(running_.gateway.url) as client:
        gateway = running_.gateway
        await until_it_speaks(client)
        client.drop()
        await until_held(running_, Holding.ABSENT, 1)
        assert [gateway.quotas.in_all(holding) for holding in Holding] == [0, 1, 1, 1]
        await client.come_back()
        assert [gateway.quotas.in_all(holding) for holding in Holding] == [1, 1, 1, 0]
        wait_for_nobody(running_)
        client.drop()
        await until(lambda: [gateway.quotas.in_all(holding) for holding in Holding] == [0, 0, 0, 0])


async def test_nothing_is_left_of_a_session_that_made_way_for_another() -> None:
    num_of_others = num_bindings()
    async with running(FakeEngine()) as running_, resuming(running_.gateway.url) as client:
        await client.send(wire.Open(context="a"))
        await client.until(wire.Opened)
        client.drop()
        for _ in range(3):
            await client.dial()
            await client.ask(token="forged")  # is refused in the socket's own session, which ends right behind
            await client.ask(received=1)
            await client.until(wire.Resumed)
            client.drop()
        await until_held(running_, Holding.ABSENT, 1)
        assert num_bindings() == num_of_others + 1


def num_bindings() -> int:
    gc.collect()
    return sum(type(each) is Binding for each in gc.get_objects())


async def test_as_many_are_waited_for_as_may_have_sockets() -> None:
    engine = FakeEngine(SLOWLY)
    async with running(engine, sockets_per_address=1) as running_:
        for num_earlier in range(3):
            async with resuming(running_.gateway.url) as client:
                await until_it_speaks(client)
            await until_held(running_, Holding.SOCKET, 0)
            await until_held(running_, Holding.ABSENT, 1)
            await engine.until(lambda: len(engine.cancels) >= num_earlier)  # noqa: B023 - waited for in this round
            assert len(engine.cancels) == num_earlier


async def test_a_drain_waits_for_nobody_who_is_away() -> None:
    engine = FakeEngine(SLOWLY)
    async with running(engine, drain_s=60) as running_, resuming(running_.gateway.url) as client:
        await until_it_speaks(client)
        client.drop()
        await until_held(running_, Holding.ABSENT, 1)
        running_.stop.set()
        assert await running_.exit_status == 0
        assert len(engine.cancels) == 1


async def test_a_key_that_is_taken_back_ends_what_waits_with_it(tmp_path: Path) -> None:
    keys, engine = tmp_path / "keys", FakeEngine(SLOWLY)
    for name in ("ann", "ben"):
        add_key(keys, Key(name, digest_of(f"secret of {name}")))
    as_ann, as_ben = ({"additional_headers": {"X-API-Key": f"secret of {name}"}} for name in ("ann", "ben"))
    async with running(engine, api_keys_file=keys) as running_:
        url = running_.gateway.url
        async with resuming(url, **as_ann) as ann, resuming(url, **as_ben) as ben:
            for client in (ann, ben):
                await until_it_speaks(client)
                client.drop()
            await until_held(running_, Holding.ABSENT, 2)
            await ben.dial()
            await ben.ask(session=ann.ready.session, token=ann.ready.token, received=0)
            await refused(ben, "cannot_resume", "another key")
            remove_key(keys, "ann")
            running_.gateway.reload()
            assert len(engine.cancels) == 1
            await until_held(running_, Holding.ABSENT, 1)


async def test_an_engine_that_hangs_is_told_on_the_next_socket() -> None:
    async with running(FakeEngine(SLOWLY)) as running_, resuming(running_.gateway.url) as client:
        await until_it_speaks(client)
        client.drop()
        await until_held(running_, Holding.ABSENT, 1)
        running_.gateway.meet_engine("the engine hangs")
        running_.gateway.meet_engine(None)
        await client.come_back()
        error = await client.until(wire.Error)
        assert (error.code, error.context) == ("engine_failed", "a")
