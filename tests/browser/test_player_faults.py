"""Networks that drop, gateways that go away or talk nonsense, browsers that refuse: what the player makes of them."""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import numpy as np
import pytest
from playwright.async_api import Page
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from tests.browser.conftest import complaints_of
from tests.browser.rig import Rig, origin_of, serving
from tests.integration.stub_gateway import Peer, Script, stub_gateway
from voicegate.engine.audio.packets import create_packet_encoder
from voicegate.engine.interface import AudioFormat
from voicegate.gateway.server.http.pages_static import HEADERS, static_file
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

pytestmark = pytest.mark.asyncio(loop_scope="session")

TONE = (0.4 * np.sin(2 * np.pi * 500 * np.arange(12_000) / 24_000)).astype(np.float32)
# Within which a busy machine comes to do what is to be done in the middle of a tone.
LONG_TONE_S = 6

M = TypeVar("M", bound=wire.ClientMessage)


def packets_of(samples: np.ndarray = TONE) -> tuple[bytes, ...]:
    encoder = create_packet_encoder(AudioFormat())
    return tuple(encoder.encode(samples) + encoder.finish())


def long_tone(seconds: int = LONG_TONE_S) -> tuple[bytes, ...]:
    return packets_of(np.tile(TONE, 2 * seconds))


async def said_to(peer: Peer) -> wire.ClientMessage:
    """The next message that is no report."""
    while isinstance(message := await peer.receive(), wire.Playback):
        pass
    return message


async def until(peer: Peer, kind: type[M]) -> M:
    while not isinstance(message := await peer.receive(), kind):
        pass
    return message


async def send_all(peer: Peer, context: str, handle: int = 0, seconds: float = 0.5, *, more: bytes = b"") -> None:
    """All of a context: so much of tone, half a second at least. `more`: a packet within it."""
    packets = packets_of(np.tile(TONE, round(2 * seconds)))
    if more:
        packets = (*packets[:12], more, *packets[12:])
    await peer.send(
        AudioMessage(handle, 0, 0, packets, is_first=True),
        AudioMessage(handle, 1, 312 + round(48_000 * seconds), (), is_last=True),
        wire.Done(context, round(1000 * seconds), len(packets), wire.Timing()),
    )


async def speak(peer: Peer, handle: int = 0, seconds: float = 0.5) -> None:
    """Answer one context."""
    context = await peer.accept(handle)
    await until(peer, wire.End)
    await send_all(peer, context, handle, seconds)


def speaking(*lengths_s: float) -> Script:
    """A gateway that answers one context behind the other, each with so much of tone."""

    async def play(peer: Peer) -> None:
        await peer.greet()
        for handle, length_s in enumerate(lengths_s):
            await speak(peer, handle, length_s)
        await peer.socket.wait_closed()

    return play


greet_and_speak = speaking(0.5)


HELLO = (wire.AlignmentItem("Hello", 0, 200, 0, 5), wire.AlignmentItem("there", 200, 900, 6, 11))


async def drop_in_mid_speech(peer: Peer, items: tuple[wire.AlignmentItem, ...] = HELLO) -> None:
    await peer.greet()
    context = await peer.accept()
    await peer.send(AudioMessage(0, 0, 0, packets_of(), is_first=True), wire.Alignment(context, items, estimated=True))
    await until(peer, wire.Playback)  # what a drop overtakes is lost
    peer.drop()


async def play(page: Page, scripts: Sequence[Script | HTTPStatus], run: str) -> Any:
    """Plays `run` in a page whose gateway plays `scripts`. Returns its value."""
    async with stub_gateway(scripts, pages) as url:
        rig = await Rig.create(page, origin_of(url), sampleRate=48_000, awaitsReady=False)
        return await rig.run(run)


def pages(request: Request) -> Response | None:
    """The player's files, as a real gateway serves them beside its stream; anything else is an empty page."""
    if request.path.partition("?")[0] == wire.STREAM_PATH:
        return None
    file = static_file(request.path)
    body, kind = (b"ok", "text/plain") if file is None else (file.body, file.content_type)
    headers = {"Connection": "close", "Content-Type": kind, "Content-Length": str(len(body))}
    return Response(200, "OK", Headers(headers if file is None else {**HEADERS, **headers}), body)


SAY = """
    const say = (text) => {
        const context = player.open();
        context.say(text);
        context.end();
        return context.finished;
    };
"""


async def test_a_cut_connection_plays_what_came_and_the_next_words_go_elsewhere(page: Page) -> None:
    first, second = await play(
        page, [drop_in_mid_speech, greet_and_speak], SAY + "return [await say('Hello there.'), await say('Again.')]"
    )
    assert (first["reason"], first["error"]["code"]) == ("failed", "connection_lost")
    assert first["playedMs"] == pytest.approx(500, abs=20), "what had come was played"
    assert (first["spokenText"], first["remainingText"]) == ("Hello", " there.")
    assert (second["reason"], second["playedMs"]) == ("done", 500)


@pytest.mark.parametrize(
    ("items", "text", "spoken"),
    [
        ((("Pay", 0, 200, 0, 3), ("1,234", 200, 300, 4, 9)), "Pay 1,234 now.", "Pay"),  # how long, nobody knows
        ((("Hello", 0, 200, 0, 5), ("there", 800, 900, 6, 11)), "Hello there.", ""),  # until the next one begins
    ],
)
async def test_a_word_is_spoken_once_the_next_one_begins(
    page: Page, items: Sequence[tuple[str, int, int, int, int]], text: str, spoken: str
) -> None:
    drop = partial(drop_in_mid_speech, items=tuple(wire.AlignmentItem(*item) for item in items))
    first = await play(page, [drop], SAY + f'return await say("{text}");')
    assert (first["spokenText"], first["remainingText"]) == (spoken, text.removeprefix(spoken))


async def test_a_context_that_was_not_opened_yet_is_opened_on_the_next_connection(page: Page) -> None:
    async def drop_at_open(peer: Peer) -> None:
        await peer.greet()
        await peer.receive()
        peer.drop()

    result = await play(page, [drop_at_open, greet_and_speak], SAY + "return await say('Once.')")
    assert result["reason"] == "done"


async def test_a_busy_gateway_is_tried_again(page: Page) -> None:
    result = await play(page, [HTTPStatus.SERVICE_UNAVAILABLE, greet_and_speak], SAY + "return await say('Now.')")
    assert result["reason"] == "done"
    assert all("503" in complaint for complaint in complaints_of(page))
    complaints_of(page).clear()


async def test_no_gateway_fails_what_waits_for_it(page: Page) -> None:
    error, is_taken = await play(
        page,
        [HTTPStatus.SERVICE_UNAVAILABLE] * 6,
        """
        const context = player.open();
        context.say("Nobody hears this.");
        return [await harness.once(context, "failed"), context.say("more")];
        """,
    )
    assert error["code"] == "connection_lost"
    assert "cannot connect" in error["message"]
    assert is_taken is False
    complaints_of(page).clear()  # of the browser, about every try


async def test_draining_keeps_what_runs_and_takes_new_words_elsewhere(page: Page) -> None:
    has_moved = asyncio.Event()

    async def drain(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept(handle=7)
        await peer.send(wire.Draining(5000))
        await has_moved.wait()
        await send_all(peer, context, handle=7)
        await peer.socket.wait_closed()

    async def take_over(peer: Peer) -> None:
        await peer.greet()
        has_moved.set()
        await speak(peer, handle=7)
        await peer.socket.wait_closed()

    first, second = await play(
        page,
        [drain, take_over],
        """
        const context = player.open();
        context.say("Slowly.");
        await harness.once(context, "opened");
        await harness.once(player, "connection", ({ state }) => state === "ready");
        const next = player.open();
        next.say("Elsewhere.");
        next.end();
        return Promise.all([context.finished, next.finished]);
        """,
    )
    assert (first["reason"], first["playedMs"]) == ("done", 500)
    assert (second["reason"], second["playedMs"]) == ("done", 500)


async def refuse_open(peer: Peer, *before: wire.ServerMessage, retry_after_ms: int | None = None) -> None:
    await peer.greet()
    opened = await until(peer, wire.Open)
    refusal = wire.Error("overloaded", "no room", fatal=True, context=opened.context, retry_after_ms=retry_after_ms)
    await peer.send(*before, refusal)
    await peer.socket.wait_closed()


async def test_an_open_that_crossed_draining_goes_elsewhere(page: Page) -> None:
    async def refuse_and_drain(peer: Peer) -> None:
        await refuse_open(peer, wire.Draining(5000))

    result = await play(page, [refuse_and_drain, greet_and_speak], SAY + "return await say('Elsewhere.')")
    assert (result["reason"], result["playedMs"]) == ("done", 500)


async def test_a_refusal_tells_when_to_come_again(page: Page) -> None:
    scripts = [partial(refuse_open, retry_after_ms=500)]
    error = await play(page, scripts, "return harness.once(player.open(), 'failed');")
    assert error == {"code": "overloaded", "message": "no room", "retryAfterMs": 500}


async def test_late_audio_of_what_was_interrupted_is_dropped(page: Page) -> None:
    async def reuse_handle(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        packets = packets_of()
        await peer.send(AudioMessage(0, 0, 0, packets, is_first=True))
        message = await until(peer, wire.Cancel)
        assert message.played_ms is not None
        await peer.send(AudioMessage(0, 1, 960 * len(packets), packets), wire.Cancelled(context, 500, "a", "b"))
        await speak(peer)
        await peer.socket.wait_closed()

    first, second = await play(
        page,
        [reuse_handle],
        SAY
        + """
        const context = player.open();
        context.say("ab");
        await harness.once(context, "position", ({ playedMs }) => playedMs > 50);
        return [await context.cancel(), await say("Again.")];
        """,
    )
    assert (first["reason"], first["spokenText"], first["remainingText"]) == ("cancelled", "a", "b")
    assert second["playedMs"] == 500


async def test_interrupting_what_the_gateway_has_finished(page: Page) -> None:
    result = await play(
        page,
        [speaking(LONG_TONE_S)],
        """
        const context = player.open();
        context.say("All sent.");
        context.end();
        await harness.once(context, "position", ({ playedMs }) => playedMs > 100);
        return await context.cancel();
        """,
    )
    assert (result["reason"], result["spokenText"], result["remainingText"]) == ("cancelled", "", "All sent.")
    assert 100 < result["playedMs"] < 1000 * LONG_TONE_S


async def test_audio_with_a_hole_in_it_fails_its_context_alone(page: Page) -> None:
    async def skip(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        await peer.send(AudioMessage(0, 0, 0, packets_of(), is_first=True), AudioMessage(0, 2, 960, packets_of()))
        await until(peer, wire.Cancel)
        await peer.send(wire.Cancelled(context, 0, "", ""))
        await speak(peer, handle=1)
        await peer.socket.wait_closed()

    first, second = await play(page, [skip], SAY + "return [await say('Holes.'), await say('Whole.')]")
    assert (first["reason"], first["error"]["code"]) == ("failed", "bad_audio")
    assert second["reason"] == "done"


async def test_a_gateway_that_cannot_be_read_is_left(page: Page) -> None:
    async def babble(peer: Peer) -> None:
        await peer.greet()
        await peer.accept()
        await peer.socket.send(b"\x07")
        await peer.socket.wait_closed()

    first, second = await play(
        page, [babble, greet_and_speak], SAY + "return [await say('What?'), await say('Better.')]"
    )
    assert "version" not in first["error"]["message"]
    assert "shorter than its header" in first["error"]["message"]
    assert second["reason"] == "done"


async def test_text_that_the_gateway_refuses_fails_its_context(page: Page) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        await said_to(peer)
        await peer.send(wire.Error("rate_limited", "too much", fatal=False, context=context))
        await until(peer, wire.Cancel)
        await peer.socket.wait_closed()

    result = await play(page, [refuse], SAY + "return await say('Too much.')")
    assert result["error"] == {"code": "rate_limited", "message": "too much", "retryAfterMs": None}


async def test_the_gateway_is_told_where_the_listener_is(page: Page) -> None:
    reports: list[wire.Playback] = []

    async def listen(peer: Peer) -> None:
        await peer.greet()
        await peer.accept()
        await peer.send(AudioMessage(0, 0, 0, long_tone(seconds=2), is_first=True))
        while True:
            message = await peer.receive()
            if isinstance(message, wire.Playback):
                reports.append(message)
            if isinstance(message, wire.Cancel):
                await peer.send(wire.Cancelled(message.context, 500, "", ""))

    await play(
        page,
        [listen],
        """
        const context = player.open();
        context.say("Reports.");
        await harness.once(context, "underrun");
        await context.cancel();
        """,
    )
    assert len(reports) >= 3, "one at the start, one each 250 ms, one at the underrun"
    assert [report.played_ms for report in reports] == sorted(report.played_ms for report in reports)
    assert (reports[0].underruns, reports[-1].underruns) == (0, 1)
    assert reports[0].buffer_ms > reports[-1].buffer_ms == 0


async def test_characters_may_be_split_between_two_calls(page: Page) -> None:
    async with serving() as (origin, engine):
        rig = await Rig.create(page, origin)
        context = await rig.run(
            r"""
            const context = player.open();
            for (const unit of ["a", "\ud83d", "\ude00b \ud800", "x c", "\udc00"]) context.say(unit);
            context.end();
            await context.finished;
            return { text: context.text, items: context.alignment.map(({ start, end, text }) =>
                [text, context.text.slice(start, end)]) };
            """
        )
        assert engine.num_live == 0
    assert context["text"] == "a😀b �x c�"
    assert context["items"], "there are some"
    assert all(text == sliced for text, sliced in context["items"])


async def test_sound_waits_for_a_gesture_and_nothing_is_lost(own_page: Page) -> None:
    # A script of the page's own: what a test evaluates counts as a gesture.
    await own_page.add_init_script(
        """addEventListener("DOMContentLoaded", async () => {
            const { Player } = await import("/player/player.js");
            const { once } = await import("/test/harness.js");
            const player = new Player();
            const context = player.open();
            context.say("abc");
            context.end();
            await once(context, "received", ({ startMs }) => startMs >= 150);
            const before = [player.audioContext.state, context.playedMs];
            window.told = once(player, "audio").then(async ({ state }) => [before, state, await context.finished]);
            console.log("received");
        })"""
    )
    async with serving() as (origin, _):
        async with own_page.expect_console_message(lambda message: message.text == "received"):
            await own_page.goto(f"{origin}/healthz")
        await own_page.mouse.click(5, 5)
        before, state, result = await own_page.evaluate("told")
    assert before == ["suspended", 0]
    assert state == "running"
    assert (result["reason"], result["playedMs"], result["underruns"]) == ("done", 180, 0)


async def test_a_page_that_is_not_secure(page: Page) -> None:
    """No AudioWorklet, no WebCodecs: what http on a home network looks like."""
    async with serving(allowed_hosts="insecure.test") as (origin, _):
        await page.goto(origin.replace("127.0.0.1", "insecure.test") + "/healthz")  # any page of its own
        await page.mouse.click(5, 5)
        result, kind, is_secure = await page.evaluate(
            """async () => {
                const { Player } = await import("/player/player.js");
                const player = new Player();
                const context = player.open();
                context.say("abcdefgh");
                context.end();
                return [await context.finished, player.decoder, isSecureContext];
            }"""
        )
    assert (kind, is_secure) == ("wasm", False)
    assert (result["reason"], result["playedMs"], result["error"]) == ("done", 480, None)


async def test_closing_the_player_ends_everything(page: Page) -> None:
    async with serving() as (origin, engine):
        rig = await Rig.create(page, origin)
        result = await rig.run(
            """
            const context = player.open();
            context.say("word ".repeat(100));
            await harness.once(context, "started");
            await player.close();
            return await context.finished;
            """
        )
        await engine.until(lambda: engine.num_live == 0)
    assert result["reason"] == "cancelled"


async def test_a_connection_has_closed_once_the_server_knows(page: Page) -> None:
    """Messages that a worker had not sent when it ends are lost: the server would wait for a client that drops, and
    speak on."""
    async with serving() as (origin, engine):
        await page.goto(f"{origin}/healthz")
        states = await page.evaluate(
            """async () => {
                const { Connection } = await import("/player/connection.js");
                const sockets = [], Own = globalThis.WebSocket;
                globalThis.WebSocket = class extends Own {
                    constructor(...args) { super(...args); sockets.push(this); }
                };
                const createStream = () => ({ start() {}, receive() {}, close() {}, cutOff() {} });
                const close = async (waits) => {
                    let isReady;
                    const ready = new Promise((resolve) => (isReady = resolve));
                    const tell = ({ type, state }) => type === "connection" && state === "ready" && isReady();
                    const connection = new Connection("/v1/stream", { tell, createStream });
                    if (waits) {
                        await ready;
                        connection.open("a", 0, {});
                        connection.send("a", "text", "word ".repeat(100));
                    }
                    await connection.close();
                };
                await close(true);
                await close(false);  // while it is dialled
                globalThis.WebSocket = Own;
                return sockets.map((socket) => socket.readyState);
            }"""
        )
        await engine.until(lambda: engine.num_live == 0)
    assert states == [3, 3]


# --- decoders ---------------------------------------------------------------------------------------------------------

# Decodes like the browser's own, until it breaks.
BREAKING = """
    const Own = globalThis.AudioDecoder;
    const breakAfter = (numPackets) => {
        globalThis.AudioDecoder = class {
            #left = numPackets; #own; #error; #broken;
            constructor({ output, error }) { this.#own = new Own({ output, error }); this.#error = error; }
            get state() { return this.#own.state; }
            configure(config) { this.#own.configure(config); }
            decode(chunk) {
                if (this.#left-- > 0) return this.#own.decode(chunk);
                this.#broken ??= this.#own.flush().then(() => {
                    this.#own.close();
                    this.#error(new Error("taken away"));
                });
            }
            async flush() { await this.#broken; throw new Error("closed"); }
            close() { this.#own.close(); }
        };
    };
"""


async def test_a_decoder_is_used_only_if_a_tone_comes_out(scratch: Page) -> None:
    kinds = await scratch.evaluate(
        f"""async () => {{
            {BREAKING}
            const {{ chooseDecoder }} = await import("/player/decoder.js");
            const own = globalThis.setTimeout;
            globalThis.setTimeout = (run, ms) => own(run, 30 * ms); // nor is a busy browser taken for a broken one
            const kinds = [(await chooseDecoder()).kindName];
            breakAfter(2); // drops packets without a word
            kinds.push((await chooseDecoder()).kindName);
            delete globalThis.AudioDecoder;
            globalThis.AudioDecoder = undefined;
            kinds.push((await chooseDecoder()).kindName);
            globalThis.AudioDecoder = Own;
            kinds.push((await chooseDecoder("wasm")).kindName, (await chooseDecoder("webcodecs")).kindName);
            globalThis.setTimeout = own;
            return kinds;
        }}"""
    )
    assert kinds == ["webcodecs", "wasm", "wasm", "wasm", "webcodecs"]


async def test_the_other_decoder_takes_over_from_one_that_breaks(scratch: Page) -> None:
    packets = packets_of()
    heard = await scratch.evaluate(
        f"""async (packets) => {{
            {BREAKING}
            const {{ Stream }} = await import("/player/stream.js");
            const {{ WebCodecsDecoder }} = await import("/player/decoder.js");
            breakAfter(10);
            const posted = [], failures = [];
            const ended = new Promise((resolve) => {{
                const sink = {{
                    rateHz: Promise.resolve(48000),
                    post: (message) => {{ posted.push(message); if (message.type === "end") resolve(); }},
                }};
                const opusKind = async () => WebCodecsDecoder;
                const onFailure = (error) => failures.push(error);
                const stream = new Stream("a", {{ sink, opusKind, tell: () => {{}}, onFailure }});
                stream.start({{ format: {{ codec: "opus" }}, sample_rate: 24000, pre_skip: 312 }});
                packets = packets.map((packet) => Uint8Array.from(packet));
                stream.receive({{ sequence: 0, pts48k: 0, packets: packets.slice(0, 15), isLast: false }});
                stream.receive({{ sequence: 1, pts48k: 14400, packets: packets.slice(15), isLast: false }});
                stream.receive({{ sequence: 2, pts48k: 24312, packets: [], isLast: true }});
            }});
            await ended;
            globalThis.AudioDecoder = Own;
            const numSamples = posted.reduce((sum, {{ samples }}) => sum + (samples?.length ?? 0), 0);
            return {{ numSamples, end: posted.at(-1), failures: failures.length }};
        }}""",
        [list(packet) for packet in packets],
    )
    assert heard["failures"] == 0
    assert heard["numSamples"] == 960 * len(packets) - 312, "every packet was decoded once"
    assert heard["end"]["numSamples"] == 24_000


async def test_audio_that_cannot_be_decoded_fails_its_context_though_the_gateway_is_done(page: Page) -> None:
    async def send_garbage(peer: Peer) -> None:
        await peer.greet()
        for handle, rest in enumerate((b"\xff" * 40, b"")):
            opened = await until(peer, wire.Open)
            context = opened.context
            await peer.send(wire.Opened(context, handle, "hum", opened.format, 24_000, 312))
            await until(peer, wire.End)
            await send_all(peer, context, handle, more=rest)
        await peer.socket.wait_closed()

    first, second = await play(page, [send_garbage], SAY + "return [await say('Broken.'), await say('Whole.')]")
    assert (first["reason"], first["error"]["code"]) == ("failed", "bad_audio")
    assert (second["reason"], second["playedMs"]) == ("done", 500)
    complaints_of(page).clear()  # of the decoder


async def test_what_pages_do_carelessly_harms_nothing(page: Page) -> None:
    """Options in a framework's proxy, pieces that are none, names like the player's own, a close behind a close."""

    text, reopened, second, refused = await play(
        page,
        [speaking(0.5, 0.5, 0.5)],
        """
        const context = player.open({ id: "c0", pronunciations: new Proxy({}, {}) });
        for (const piece of ["Hello", undefined, null, "."]) context.say(piece);
        context.end();
        const reopened = new Promise((resolve) => {
          context.addEventListener("finished", () => resolve(player.open({ id: "c0" })));
        });
        await context.finished;
        const again = await reopened;
        again.say("Again.");
        again.end();
        const other = player.open();
        other.say("Other.");
        other.end();
        await other.finished;
        await player.close();
        await player.close();
        const refused = await player.start().catch((error) => error.message);
        return [context.text, again.id, other.id, refused];
        """,
    )
    assert (text, reopened, refused) == ("Hello.", "c0", "the player is closed")
    assert second not in ("c0", None)
