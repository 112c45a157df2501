"""Failures are told, and leave nothing waiting; a closed player does nothing any more."""

import asyncio

import pytest
from playwright.async_api import Page

from tests.browser.conftest import complaints_of
from tests.browser.rig import Rig, serving
from tests.browser.test_player_faults import SAY, pages, play, said_to, speak
from tests.integration.stub_gateway import Peer, stub_gateway
from voicegate.gateway.server.http import pages_static
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("context_id", ['""', '"x".repeat(65)', r'"a\u0001b"', r'"\ud800"', "null", "5"])
async def test_an_id_that_no_gateway_takes_is_refused_and_blocks_nobody(page: Page, context_id: str) -> None:
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin)
        thrown, result = await rig.run(
            f"let thrown = null; try {{ player.open({{ id: {context_id} }}) }} catch (error) {{ thrown = error.name }}"
            r"""
            const context = player.open({ id: "\u{1f600}".repeat(64) });
            context.say("word");
            context.end();
            return [thrown, await context.finished];
            """
        )
    assert (thrown, result["reason"]) == ("TypeError", "done")


HALF = r'"Softly \ud83d"'


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (f"instruct: {HALF}", None),
        (f"voice: {HALF}", "unknown_voice"),
        (f"language: {HALF}", "bad_message"),
        (f"pronunciations: {{ [{HALF}]: {HALF} }}", None),
    ],
    ids=["instruct", "voice", "language", "pronunciations"],
)
async def test_half_a_character_in_an_option_is_answered_as_one(page: Page, options: str, code: str | None) -> None:
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin)
        result = await rig.run(
            f"const context = player.open({{ {options} }});"
            "context.say('word'); context.end(); return await context.finished;"
        )
    assert (result["error"] or {}).get("code") == code


async def test_half_a_character_in_the_name_of_a_flush_is_answered(page: Page) -> None:
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin)
        flushed = await rig.run(
            r"""
            const context = player.open();
            context.say("word ");
            context.flush("a\ud83d");
            return harness.once(context, "flushed");
            """
        )
    assert flushed["id"] == "a\ufffd"


async def test_a_flush_behind_the_end_harms_nothing(page: Page) -> None:
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin)
        result = await rig.run(
            """
            const context = player.open();
            context.say("some words");
            context.end();
            context.flush();
            return context.finished;
            """
        )
    assert (result["reason"], result["error"]) == ("done", None)


async def test_what_a_gateway_that_goes_has_not_opened_is_opened_on_the_connection_that_is_there(page: Page) -> None:
    has_moved = asyncio.Event()

    async def go_unread(peer: Peer) -> None:
        await peer.greet()
        assert isinstance(await peer.receive(), wire.Open)
        await peer.send(wire.Draining(5000))
        await has_moved.wait()
        await peer.socket.close(1001)

    async def take_over(peer: Peer) -> None:
        await peer.greet()
        await peer.socket.recv()  # a ping: the greeting has come
        has_moved.set()
        await speak(peer)
        await peer.socket.wait_closed()

    result = await play(page, [go_unread, take_over], SAY + "return await say('Elsewhere.')")
    assert (result["reason"], result["playedMs"]) == ("done", 500)


async def test_an_address_that_the_browser_refuses_fails_what_is_opened(scratch: Page) -> None:
    """As that of a gateway without TLS is refused to a page that has it: by an error that is thrown."""
    told = await scratch.evaluate(
        """async () => {
            const { Connection } = await import("/player/connection.js");
            const Own = globalThis.WebSocket, told = [];
            globalThis.WebSocket = class { constructor() { throw new DOMException("insecure", "SecurityError"); } };
            const createStream = () => ({ nextSequence: 0, start() {}, receive() {}, close() {}, cutOff() {} });
            const failed = new Promise((resolve) => {
                const tell = (event) => event.type === "failed" && resolve(event);
                const connection = new Connection("/v1/stream", { tell, createStream });
                connection.open("a", 0, {});
            });
            const { context, code, reason } = await failed;
            globalThis.WebSocket = Own;
            return [context, code, reason];
        }"""
    )
    assert told == ["a", "connection_lost", "cannot connect (insecure)"]


async def test_what_has_failed_twice_is_not_over_before_the_gateway_says_so(scratch: Page) -> None:
    """Audio came out of turn, and packets before it turn out to be none: its name is taken there."""

    async def be_silent(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        while not isinstance(await said_to(peer), wire.Cancel):
            pass
        await peer.send(wire.Cancelled(context, 0, "", ""))
        await peer.socket.wait_closed()

    async with stub_gateway([be_silent], pages) as url:
        told = await scratch.evaluate(
            """async (url) => {
                const { Connection } = await import("/player/connection.js");
                const told = [];
                let fail, end;
                const over = new Promise((resolve) => (end = resolve));
                const stream = { nextSequence: 0, receive() {}, close() {}, cutOff() {} };
                stream.start = () => {
                    fail(new Error("once"));
                    fail(new Error("twice"));
                    told.push("both");
                };
                const tell = ({ type }) => {
                    if (type === "failed" || type === "over") told.push(type);
                    if (type === "over") end();
                };
                const createStream = (_track, onFailure) => ((fail = onFailure), stream);
                const connection = new Connection(url, { tell, createStream });
                connection.open("a", 0, {});
                await over;
                await connection.close();
                return told;
            }""",
            f"{url}{wire.STREAM_PATH}",
        )
    assert told == ["failed", "both", "over"]


async def test_what_is_interrupted_before_sound_has_a_way_out_is_not_heard_later(page: Page) -> None:
    """On a slow network, on which the gateway is done before the audio thread's file is there."""
    async with serving() as (origin, _):
        await page.goto(f"{origin}/healthz")
        await page.mouse.click(5, 5)
        peak = await page.evaluate(
            """async () => {
                const own = AudioWorklet.prototype.addModule;
                let load;
                const mayLoad = new Promise((resolve) => (load = resolve));
                AudioWorklet.prototype.addModule = async function (...args) {
                    await mayLoad;
                    return own.apply(this, args);
                };
                const { Player } = await import("/player/player.js");
                const player = new Player();
                const context = player.open();
                context.say("word");
                context.end();
                await new Promise((resolve) => setTimeout(resolve, 1500)); // the gateway is done
                const { reason } = await context.cancel();
                load();
                await player.start();
                const analyser = new AnalyserNode(player.audioContext, { fftSize: 32768 });
                player.output.connect(analyser);
                await new Promise((resolve) => setTimeout(resolve, 500));
                const samples = new Float32Array(analyser.fftSize);
                analyser.getFloatTimeDomainData(samples);
                await player.close();
                AudioWorklet.prototype.addModule = own;
                return [reason, samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0)];
            }"""
        )
    assert peak == ["cancelled", 0]


async def test_a_closed_player_opens_nothing_and_tells_no_more(page: Page) -> None:
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin)
        thrown, states = await rig.run(
            """
            await player.close();
            const states = [];
            player.addEventListener("audio", ({ detail }) => states.push(detail.state));
            let thrown = null;
            try { player.open(); } catch (error) { thrown = error.message; }
            await rig.audioContext.suspend();
            await rig.audioContext.resume();
            return [thrown, states];
            """
        )
    assert (thrown, states) == ("the player is closed", [])


async def test_a_closed_players_audio_thread_has_nothing_to_do(page: Page) -> None:
    """On an AudioContext of the page's, which lives on."""
    async with serving() as (origin, _):
        await page.goto(f"{origin}/healthz")
        await page.mouse.click(5, 5)
        num_rendered = await page.evaluate(
            """async () => {
                const source = `
                    let count = 0;
                    const told = () => [count, currentFrame];
                    const register = globalThis.registerProcessor;
                    globalThis.registerProcessor = (name, Processor) => register(name, class extends Processor {
                        process(...args) { count += 1; return super.process(...args); }
                    });
                    register("counter", class extends AudioWorkletProcessor {
                        constructor() { super(); this.port.onmessage = () => this.port.postMessage(told()); }
                        process() { return true; }
                    });`;
                const audioContext = new AudioContext();
                const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
                await audioContext.audioWorklet.addModule(url);
                const counter = new AudioWorkletNode(audioContext, "counter");
                const look = () => new Promise((resolve) => {
                    counter.port.onmessage = ({ data }) => resolve(data);
                    counter.port.postMessage("");
                });
                const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
                const { Player } = await import("/player/player.js");
                const player = new Player({ audioContext });
                await player.start();
                while ((await look())[0] < 10) await wait(5);
                await player.close();
                // On a busy machine the audio thread hears of it later.
                for (let tries = 0; ; tries++) {
                    const [before, frame] = await look();
                    while ((await look())[1] < frame + audioContext.sampleRate * 0.3) await wait(5);
                    const numRendered = (await look())[0] - before;
                    if (numRendered === 0 || tries === 20) return numRendered;
                }
            }"""
        )
    assert num_rendered == 0


async def test_a_player_whose_worker_cannot_be_loaded_fails_what_it_is_given(page: Page) -> None:
    async with serving() as (origin, _):
        await page.route("**/player/worker.js", lambda route: route.fulfill(status=503))
        rig = await Rig.create(page, origin, awaitsReady=False)
        results, num_interrupted = await rig.run(
            """
            const contexts = [player.open()];
            const results = [await contexts[0].finished];
            contexts.push(player.open());
            results.push(await contexts[1].finished);
            const interrupted = await player.interrupt();
            await player.close();
            return [results, interrupted.length];
            """
        )
    assert [(result["reason"], result["error"]["code"]) for result in results] == [("failed", "broken")] * 2
    assert "cannot be loaded" in results[0]["error"]["message"]
    assert num_interrupted == 0
    assert all("503" in complaint for complaint in complaints_of(page))
    complaints_of(page).clear()


async def test_an_output_that_could_not_be_loaded_is_tried_again(page: Page) -> None:
    async with serving() as (origin, _):
        await page.goto(f"{origin}/healthz")
        await page.mouse.click(5, 5)
        outcome = await page.evaluate(
            """async () => {
                const own = AudioWorklet.prototype.addModule;
                AudioWorklet.prototype.addModule = function () {
                    AudioWorklet.prototype.addModule = own;
                    return Promise.reject(new Error("not now"));
                };
                const { Player } = await import("/player/player.js");
                const player = new Player();
                const first = await player.start().then(() => "started", (error) => error.message);
                const context = player.open();
                context.say("word");
                context.end();
                const { reason } = await context.finished;
                await player.close();
                return [first, reason];
            }"""
        )
    assert outcome == ["not now", "done"]


@pytest.mark.parametrize("decoder", ["auto", "wasm"])
async def test_where_nothing_may_be_compiled_the_browsers_own_decoder_or_none(
    page: Page, decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = pages_static.HEADERS["Content-Security-Policy"]
    assert "'wasm-unsafe-eval'" in policy
    monkeypatch.setitem(pages_static.HEADERS, "Content-Security-Policy", policy.replace("'wasm-unsafe-eval'", ""))
    async with serving() as (origin, _):
        rig = await Rig.create(page, origin, decoder=decoder)
        result = await rig.run(
            "const context = player.open(); context.say('word'); context.end(); return await context.finished;"
        )
    assert result["reason"] == ("done" if decoder == "auto" else "failed")
    assert all("wasm" in complaint.lower() for complaint in complaints_of(page))
    complaints_of(page).clear()
