"""A context without a server: what goes out, what the calls raise, what cancel returns."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from voicegate.clients.python.context import Context
from voicegate.clients.python.errors import ConnectionLost, ContextClosed, ContextFailed, InvalidInput
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

PACKET = b"\xf8" + bytes(9)
OPENED = wire.Opened("c", 0, "woman", wire.Format(), 24_000, 312)
DONE = wire.Done("c", 1000, 50, wire.Timing())
WORDS = (
    wire.AlignmentItem("One ", 0, 300, 0, 4),
    wire.AlignmentItem("two ", 300, 700, 4, 8),
    wire.AlignmentItem("three", 700, 1000, 8, 13),
)


class Wire:
    def __init__(self) -> None:
        self.sent: list[wire.ClientMessage] = []

    async def send(self, message: wire.ClientMessage, on_leaving: Callable[[], None] = lambda: None) -> None:
        on_leaving()
        self.sent.append(message)

    def cancel_soon(self) -> None:
        self.sent.append(wire.Cancel("c"))

    def context(self) -> Context:
        context = Context("c", send=self.send, cancel_soon=self.cancel_soon, max_text_bytes=8, max_unread_bytes=1000)
        context.receive(OPENED)
        return context


@pytest.fixture
def line() -> Wire:
    return Wire()


@pytest.fixture
async def context(line: Wire) -> Context:
    return line.context()


async def test_text_goes_out_as_written(context: Context, line: Wire) -> None:
    for piece in ("Hel", "lo", "", " ", "you"):
        await context.say(piece)
    await context.flush("f1")
    await context.end()
    await context.end()
    texts = [wire.Text("c", piece) for piece in ("Hel", "lo", " ", "you")]
    assert line.sent == [*texts, wire.Flush("c", "f1"), wire.End("c")]
    assert context.text == "Hello you"


@pytest.mark.parametrize("text", ["abcdefghijklmnopqrst", "äöüßäöüß", "aä語😀語äa", "😀😀😀"])
async def test_long_text_is_sent_in_parts_that_the_server_takes(context: Context, line: Wire, text: str) -> None:
    await context.say(text)
    pieces = [message.text for message in line.sent if isinstance(message, wire.Text)]
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert all(len(piece.encode()) <= 8 for piece in pieces)


async def test_half_a_surrogate_pair_is_refused_before_it_is_sent(context: Context, line: Wire) -> None:
    with pytest.raises(InvalidInput, match="UTF-8"):
        await context.say("\ud83d")
    assert (line.sent, context.text) == ([], "")


async def test_the_clock_starts_with_the_first_speakable_text(context: Context) -> None:
    await context.say("\n")
    assert context.first_text_s is None
    await context.say("a")
    first_s = context.first_text_s
    await context.say("b")
    assert first_s is not None
    assert context.first_text_s == first_s
    assert context.last_text_s is not None
    assert context.last_text_s >= first_s


async def test_no_text_after_the_end(context: Context) -> None:
    await context.end()
    with pytest.raises(ContextClosed, match="after end"):
        await context.say("more")
    with pytest.raises(ContextClosed, match="takes no flush after end"):
        await context.flush()
    context.receive(DONE)
    for call in (context.say("more"), context.flush(), context.end()):
        with pytest.raises(ContextClosed, match="has ended"):
            await call


async def test_a_failure_is_raised_by_every_call_and_after_the_audio(context: Context) -> None:
    context.receive(AudioMessage(0, 0, 0, (PACKET,), is_first=True))
    context.receive(wire.Error("engine_failed", "no", fatal=True, context="c"))
    assert (await anext(context)).packets == (PACKET,)
    for call in (anext(context), context.say("x"), context.flush(), context.end(), context.cancel()):
        with pytest.raises(ContextFailed, match="engine_failed: no"):
            await call


async def test_a_lost_socket_is_raised_to_the_reader(context: Context) -> None:
    reading = asyncio.ensure_future(anext(context))
    context.lose(ConnectionLost("gone"))
    with pytest.raises(ConnectionLost):
        await reading


async def test_iteration_ends_with_the_context(context: Context) -> None:
    context.receive(AudioMessage(0, 0, 0, (PACKET,), is_first=True))
    context.receive(AudioMessage(0, 1, 960, (), is_last=True))
    context.receive(DONE)
    assert [audio.is_last async for audio in context] == [False, True]
    assert (context.result, context.end_pts_48k) == (DONE, 960)


async def test_each_flush_is_waited_for_by_itself(context: Context) -> None:
    await context.flush()
    context.receive(wire.Flushed("c", "", 300))
    assert (await context.wait_flushed()).audio_ms == 300
    await context.flush()
    second = asyncio.create_task(context.wait_flushed())
    await asyncio.sleep(0)
    await context.flush()
    both = asyncio.create_task(context.wait_flushed())
    await asyncio.sleep(0)
    assert not second.done()
    context.receive(wire.Flushed("c", "other", 350))
    context.receive(wire.Flushed("c", "", 400))
    assert (await second).audio_ms == 400
    assert not both.done()
    context.receive(wire.Flushed("c", "", 500))
    assert (await both).audio_ms == 500


async def test_alignments_and_flushes_are_kept(context: Context) -> None:
    context.receive(wire.Alignment("c", WORDS[:1], estimated=True))
    context.receive(wire.Alignment("c", WORDS[1:], estimated=True))
    context.receive(wire.Flushed("c", "f", 300))
    assert context.alignments == WORDS
    assert context.flushes == (wire.Flushed("c", "f", 300),)


async def test_cancel_waits_for_the_answer_and_ends_the_reading(context: Context, line: Wire) -> None:
    context.receive(AudioMessage(0, 0, 0, (PACKET,), is_first=True))
    cancelling = asyncio.ensure_future(context.cancel(played_ms=40))
    async for _ in context:
        pass
    assert line.sent == [wire.Cancel("c", 40)]
    answer = wire.Cancelled("c", 60, "a", "b")
    context.receive(answer)
    assert await cancelling == answer
    assert await context.cancel() == answer
    assert len(line.sent) == 1


@pytest.mark.parametrize(
    ("played_ms", "spoken"), [(None, "One two three"), (1000, "One two three"), (999, "One two "), (299, ""), (0, "")]
)
async def test_cancel_after_done_splits_by_the_alignment(
    context: Context, line: Wire, played_ms: int | None, spoken: str
) -> None:
    await context.say("One two ")
    await context.say("three")
    context.receive(wire.Alignment("c", WORDS, estimated=False))
    context.receive(DONE)
    line.sent.clear()
    cancelled = await context.cancel(played_ms)
    assert cancelled == wire.Cancelled("c", 1000, spoken, "One two three"[len(spoken) :])
    assert line.sent == []
    assert context.result == DONE


async def test_who_cancels_what_was_abandoned_is_told_what_the_listener_heard(context: Context, line: Wire) -> None:
    await context.say("One two three")
    context.receive(wire.Alignment("c", WORDS, estimated=True))
    line.sent.clear()
    context.abandon()
    cancelling = asyncio.create_task(context.cancel(played_ms=400))
    await asyncio.sleep(0)
    made = wire.Cancelled("c", 1000, "One two th", "ree")
    context.receive(made)
    assert await cancelling == wire.Cancelled("c", 1000, "One ", "two three")
    assert line.sent == [wire.Cancel("c")]
    assert [await context.cancel(), await context.cancel(1000)] == [made, made]


async def test_playback_reports_go_out_even_after_the_end(context: Context, line: Wire) -> None:
    context.receive(DONE)
    await context.report_playback(100, buffer_ms=20, underruns=1)
    assert line.sent == [wire.Playback("c", 100, 20, 1)]


async def test_players_tell_fractions_of_milliseconds(context: Context, line: Wire) -> None:
    await context.report_playback(640.6, 79.5, 1)
    cancelling = asyncio.create_task(context.cancel(640.4))
    await asyncio.sleep(0)
    assert line.sent == [wire.Playback("c", 641, 80, 1), wire.Cancel("c", 640)]
    context.receive(wire.Cancelled("c", 640, "One ", "two"))
    assert (await cancelling).spoken_text == "One "


@pytest.mark.parametrize("played_ms", [-1, float("nan"), float("inf"), "640"])
async def test_what_is_no_time_is_refused_and_cancels_nothing(context: Context, line: Wire, played_ms: float) -> None:
    for call in (context.cancel, context.report_playback):
        with pytest.raises(InvalidInput, match=r"played_ms is .*; it must be milliseconds"):
            await call(played_ms)
    await context.say("more")
    assert line.sent == [wire.Text("c", "more")]


class SlowWire(Wire):
    """Takes one piece of text, and lets the next wait."""

    def __init__(self) -> None:
        super().__init__()
        self.has_room = asyncio.Event()

    async def send(self, message: wire.ClientMessage, on_leaving: Callable[[], None] = lambda: None) -> None:
        if isinstance(message, wire.Text) and self.sent:
            await self.has_room.wait()
        await super().send(message, on_leaving)


async def test_of_a_say_that_is_cancelled_the_text_has_what_was_said() -> None:
    line = SlowWire()
    context = line.context()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await context.say("one two three four five six")
    assert context.text == "one two ", "what waited has not left"


async def test_what_waited_while_its_context_was_cancelled_is_not_said_by_another_of_its_name() -> None:
    line = SlowWire()
    context = line.context()
    saying = asyncio.create_task(context.say("one two three four five six"))
    await asyncio.sleep(0.01)
    context.abandon()
    context.receive(wire.Cancelled("c", 0, "", "one two "))
    line.has_room.set()
    with pytest.raises(ContextClosed):
        await saying
    assert line.sent == [wire.Text("c", "one two "), wire.Cancel("c")]
    assert context.text == "one two "


async def test_abandoned_it_ends_at_once_and_the_server_is_told_once(context: Context, line: Wire) -> None:
    reading = asyncio.create_task(anext(context, None))
    await asyncio.sleep(0)
    context.abandon()
    context.abandon()
    assert await reading is None
    assert line.sent == [wire.Cancel("c")]


async def test_abandoned_behind_its_end_it_is_as_it_ended(context: Context, line: Wire) -> None:
    context.receive(DONE)
    context.abandon()
    assert (context.result, line.sent) == (DONE, [])


@pytest.mark.parametrize("text", [None, b"bytes", 5, ["a"]])
async def test_what_is_no_text_is_refused_by_name(context: Context, line: Wire, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"{type(text).__name__}; it must be str"):
        await context.say(text)
    assert (line.sent, context.text) == ([], "")


@pytest.mark.parametrize("flush_id", [None, 5, "x" * 65])
async def test_an_id_that_no_server_takes_is_refused_before_it_is_sent(
    context: Context, line: Wire, flush_id: str
) -> None:
    with pytest.raises(InvalidInput, match="flush_id"):
        await context.flush(flush_id)
    await context.say("more")
    assert line.sent == [wire.Text("c", "more")]


@pytest.mark.parametrize("underruns", [-1, 1.5, None])
async def test_what_is_no_count_of_underruns_is_refused(context: Context, line: Wire, underruns: int) -> None:
    with pytest.raises(InvalidInput, match="underruns"):
        await context.report_playback(100, 50, underruns)
    assert line.sent == []


async def test_players_count_in_numpy_too(context: Context, line: Wire) -> None:
    await context.report_playback(np.float32(640.6), np.int64(80), np.int32(1))  # type: ignore[arg-type]
    assert line.sent == [wire.Playback("c", 641, 80, 1)]


async def test_what_follows_text_does_not_overtake_it() -> None:
    line = SlowWire()
    context = line.context()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(context.say("one two three"))
        tasks.create_task(context.say("four"))
        tasks.create_task(context.flush("f"))
        tasks.create_task(context.end())
        await asyncio.sleep(0.01)
        assert len(line.sent) == 1
        line.has_room.set()
    texts = [wire.Text("c", piece) for piece in ("one two ", "three", "four")]
    assert line.sent == [*texts, wire.Flush("c", "f"), wire.End("c")]
