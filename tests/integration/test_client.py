"""The Python client against a real gateway with the FakeEngine: text in, exact audio out, ends of every kind."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from tests.support.polling import until
from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.decode import decode_all
from voicegate.clients.python.dialing import LinkOptions
from voicegate.clients.python.errors import (
    ConnectFailed,
    ConnectionLost,
    ContextClosed,
    ContextFailed,
    InvalidInput,
    MissingDependency,
    ReaderTooSlow,
)
from voicegate.clients.python.report import timeline_of
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import Overloaded
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.usefixtures("no_hang")

MS_PER_CHARACTER = Script().ms_per_character


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Script(real_time_factor=0.0))


@pytest.fixture
async def url(engine: FakeEngine) -> AsyncIterator[str]:
    async with running_gateway(GatewayConfig(waiting_s=0.0), engine) as url:
        yield url


@pytest.fixture
async def gate(url: str) -> AsyncIterator[Gate]:
    async with connect(url) as gate:
        yield gate


async def _read_all(context: Context) -> list[Audio]:
    return [item async for item in context]


async def words(*pieces: str) -> AsyncIterator[str]:
    for piece in pieces:
        yield piece


async def test_a_gate_is_awaited_too_as_websockets_are(url: str) -> None:
    gate = await connect(url)
    assert len([packet async for packet in gate.speak("Hello.")]) > 5
    await gate.close()
    with pytest.raises(ContextClosed):
        await gate.open()


async def test_a_gate_that_is_awaited_and_then_entered_has_one_connection(url: str) -> None:
    """`async with await connect(url)` is common elsewhere; a second connection would never be closed."""
    gate = await connect(url)
    session = gate.ready.session
    async with gate:
        assert gate.ready.session == session
        await gate.close()
        with pytest.raises(ContextClosed):
            await gate


async def test_a_context_from_open_to_done(gate: Gate) -> None:
    context = await gate.open(voice="drone", seed=3)
    assert (context.opened.voice, context.opened.format.codec) == ("drone", "opus")
    for piece in ("Hel", "lo ", "world"):
        await context.say(piece)
    await context.end()
    audio = await _read_all(context)
    assert isinstance(context.result, wire.Done)
    assert context.result.audio_ms == 10 * MS_PER_CHARACTER
    assert context.result.timing.ttfb_ms is not None
    assert [item.is_first for item in audio] == [True] + [False] * (len(audio) - 1)
    assert [item.is_last for item in audio] == [False] * (len(audio) - 1) + [True]
    pcm = np.frombuffer(decode_all(context.opened, audio), np.int16)
    assert len(pcm) == 10 * MS_PER_CHARACTER * 24
    assert [item.text for item in context.alignments] == ["Hello", "world"]
    timeline = timeline_of(context, audio)
    assert timeline is not None
    assert timeline.audio_s == pytest.approx(0.6)
    assert 0 < timeline.first_audio_s <= timeline.generation_s


async def test_speak_gives_the_same_packets_for_any_split(gate: Gate) -> None:
    whole = [packet async for packet in gate.speak("One two three.", seed=1)]
    pieces = [packet async for packet in gate.speak(words("One t", "wo th", "", "ree."), seed=1)]
    assert len(whole) == len(pieces) > 10


async def test_flush_is_answered_while_the_context_stays_open(gate: Gate) -> None:
    context = await gate.open()
    await context.say("half a wo")
    await context.flush("now")
    assert (await context.wait_flushed("now")).audio_ms >= 7 * MS_PER_CHARACTER
    await context.say("rd")
    await context.end()
    assert (await _read_all(context))[-1].is_last
    with pytest.raises(ContextClosed):
        await context.wait_flushed("never asked for")


async def test_long_text_is_cut_to_what_the_server_takes(url: str) -> None:
    async with connect(url) as gate:
        text = "ä" * gate.ready.limits.text_bytes
        context = await gate.open()
        await context.say(text)
        cancelled = await context.cancel()
    assert cancelled.spoken_text + cancelled.remaining_text == text


async def test_an_option_that_there_is_not_is_refused(gate: Gate) -> None:
    options: Any = {"vioce": "hum"}
    with pytest.raises(TypeError, match="vioce: a context has no such option"):
        await gate.open(**options)


async def test_a_proxy_that_needs_another_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(MissingDependency, match="pip install python-socks"):
        async with connect("ws://gate.example:8080"):
            pass


async def test_cancel_stops_and_splits_the_text(url: str, engine: FakeEngine) -> None:
    text = "one two three four five six seven "
    async with connect(url) as gate:
        context = await gate.open()
        await context.say(text)
        while (await anext(context)).pts_48k < 3 * MS_PER_CHARACTER * 48:
            pass  # what was not made cannot have been played
        cancelled = await context.cancel(played_ms=3 * MS_PER_CHARACTER)
        assert (cancelled.spoken_text.strip(), cancelled.spoken_text + cancelled.remaining_text) == ("one", text)
        assert context.result == cancelled
        with pytest.raises(StopAsyncIteration):
            await anext(context)
        with pytest.raises(ContextClosed):
            await context.say("more")
        # The socket and later contexts are unharmed.
        assert [packet async for packet in gate.speak("again")]


async def test_leaving_speak_early_cancels(gate: Gate, engine: FakeEngine) -> None:
    speaking = gate.speak(words(*["many words "] * 50))
    async for _ in speaking:
        break
    await speaking.aclose()
    await until(lambda: len(engine.cancels) == 1)


@pytest.mark.parametrize(
    ("failure", "raised", "told"),
    [
        (LookupError("the LLM is gone"), LookupError, "the LLM is gone"),
        (asyncio.CancelledError(), ContextFailed, "text_cancelled"),
    ],
)
async def test_a_text_source_that_fails_cancels_and_is_told(
    gate: Gate, engine: FakeEngine, failure: BaseException, raised: type[Exception], told: str
) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "some words "
        raise failure

    with pytest.raises(raised, match=told):
        async for _ in gate.speak(broken()):
            pass
    await until(lambda: len(engine.cancels) == 1)


async def test_pieces_of_an_answer_may_be_none(gate: Gate) -> None:
    async def deltas() -> AsyncIterator[str | None]:
        for piece in (None, "some ", "", "words.", None):
            yield piece

    assert [packet async for packet in gate.speak(deltas())]


@pytest.mark.parametrize("text", [["some ", "words"], None, 5])
async def test_what_is_no_text_is_refused_with_what_would_be(gate: Gate, text: str) -> None:
    with pytest.raises(InvalidInput, match="must be str, or be iterated by `async for`"):
        await anext(gate.speak(text))


async def test_a_default_id_is_none_that_is_taken(gate: Gate) -> None:
    taken = await gate.open(context_id="c1")
    others = [await gate.open() for _ in range(3)]
    assert len({context.context_id for context in (taken, *others)}) == 4


async def test_a_gate_belongs_to_its_event_loop(gate: Gate) -> None:
    async def open_elsewhere() -> None:
        async with asyncio.timeout(10):
            await gate.open()

    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, open_elsewhere())
    assert [packet async for packet in gate.speak("still here")]


class TestFailures:
    @pytest.fixture
    def engine(self) -> FakeEngine:
        faults = {0: Fault(FaultKind.FAIL, after_ms=100)}
        return FakeEngine(Script(faults=faults, refusals={1: Overloaded("full", retry_after_ms=250)}))

    async def test_a_failed_context_raises_after_its_audio(self, gate: Gate) -> None:
        context = await gate.open()
        await context.say("some words that will fail ")
        assert (await anext(context)).packets
        with pytest.raises(ContextFailed, match="scripted failure") as caught:
            await _read_all(context)
        assert caught.value.code == "engine_failed"
        assert context.result is None
        context = await gate.open()
        await context.say("no room for these ")
        with pytest.raises(ContextFailed, match="full") as caught:
            await anext(context)
        assert (caught.value.code, caught.value.retry_after_ms) == ("overloaded", 250)
        assert [packet async for packet in gate.speak("third time lucky")]


async def test_open_refusals_name_what_was_wrong(gate: Gate) -> None:
    with pytest.raises(ContextFailed, match=r"unknown_voice: .*hum"):
        await gate.open(voice="nobody")
    with pytest.raises(ContextFailed, match=r"bad_message: .*speed"):
        await gate.open(speed=9.0)
    with pytest.raises(InvalidInput, match="printable"):
        await gate.open(context_id="a\nb")
    await gate.open(context_id="mine")
    with pytest.raises(InvalidInput, match="open already"):
        await gate.open(context_id="mine")


async def test_an_unread_context_fails_and_the_others_go_on(url: str, engine: FakeEngine) -> None:
    async with connect(url, link_options=LinkOptions(max_unread_bytes=20_000)) as gate:
        unread = await gate.open()
        read = await gate.open()
        await unread.say("much too much " * 100)
        await read.say("just right")
        await read.end()
        assert (await _read_all(read))[-1].is_last
        await unread.flush()
        with pytest.raises(ReaderTooSlow):
            await unread.wait_flushed()
        with pytest.raises(ReaderTooSlow):
            await anext(unread)
        # The server was told: it answers for a context that it has cancelled before it opens another.
        await gate.open()
        assert len(engine.cancels) == 1


async def test_whoever_is_cancelled_again_while_the_gate_closes_leaves_nothing_open(url: str) -> None:
    """As tasks below anyio are, at every step."""

    reads = asyncio.Event()

    async def listen() -> None:
        async with connect(url) as gate:
            context = await gate.open()
            reads.set()
            await anext(context)

    before = asyncio.all_tasks()
    listening = asyncio.create_task(listen())
    await reads.wait()
    while not listening.done():
        listening.cancel()
        await asyncio.sleep(0)
    await until(lambda: asyncio.all_tasks() <= before)


async def test_a_gate_that_was_not_entered_says_so(url: str) -> None:
    with pytest.raises(ContextClosed, match="async with"):
        await connect(url).open()


async def test_a_gate_that_was_closed_is_not_entered(url: str) -> None:
    before = asyncio.all_tasks()
    left = connect(url)
    async with left:
        pass
    entered_meanwhile = connect(url)
    entering = asyncio.create_task(entered_meanwhile.__aenter__())
    await asyncio.sleep(0)
    await entered_meanwhile.close()
    for enter in (left.__aenter__(), entering):
        with pytest.raises(ContextClosed, match="the gate is closed"):
            await enter
    await until(lambda: asyncio.all_tasks() <= before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of sockets that end with a program
async def test_a_program_that_ends_while_a_gate_closes_complains_of_nothing(url: str) -> None:
    told: list[dict[str, Any]] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: told.append(trouble))
        gate = await connect(url).__aenter__()
        closing = asyncio.create_task(gate.close())
        await asyncio.sleep(0)
        closing.cancel()

    def run() -> None:
        asyncio.run(leave())
        gc.collect()

    await asyncio.to_thread(run)
    assert told == []


async def test_closing_the_gate_ends_its_contexts(url: str, engine: FakeEngine) -> None:
    gate = connect(url)
    async with gate:
        context = await gate.open()
    with pytest.raises(ConnectionLost):
        await anext(context)
    with pytest.raises(ConnectionLost):
        await context.say("more")
    with pytest.raises(ContextClosed, match="gate is closed"):
        await gate.open()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("ws://127.0.0.1:9", "cannot connect .*refused"),
        ("ws://[::1", "no address"),
        ("mailto:x", "looks like ws://"),
        ("ws://localhost:port", "ort"),
    ],
)
async def test_addresses_that_cannot_work(address: str, reason: str) -> None:
    with pytest.raises((ConnectFailed, InvalidInput), match=reason):
        async with connect(address):
            pass


@pytest.mark.parametrize("scheme", ["", "ftp://", "ws://[::1"])
async def test_what_is_no_address_tells_no_key_that_is_in_it(scheme: str) -> None:
    with pytest.raises(InvalidInput, match=r"gate\.example/v1/stream'") as caught:
        async with connect(f"{scheme}me:SECRET@gate.example/v1/stream?access_token=SECRET"):
            pass
    assert "SECRET" not in str(caught.value)


async def test_a_page_that_is_no_stream_is_refused_for_good(url: str) -> None:
    with pytest.raises(ConnectFailed, match=r"does not|HTTP") as caught:
        async with connect(url.replace("/v1/stream", "/healthz")):
            pass
    assert not caught.value.is_transient
