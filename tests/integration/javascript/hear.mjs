// A Node.js process with other vendors' packages in it: each says what it is told through a gateway. Reads its plan in
// JSON, {said, pieces: {name: {code, turns}}}, and prints by name what was heard in each turn, in base64, or what failed.

import Cartesia from "@cartesia/cartesia-js";
import { DeepgramClient } from "@deepgram/sdk";
import { ElevenLabsClient } from "@elevenlabs/elevenlabs-js";
import { initializeLogger } from "@livekit/agents";
import * as cartesia from "@livekit/agents-plugin-cartesia";
import * as deepgram from "@livekit/agents-plugin-deepgram";
import * as elevenlabs from "@livekit/agents-plugin-elevenlabs";
import * as openai from "@livekit/agents-plugin-openai";
import OpenAI from "openai";

const PATIENCE_MS = 60_000;
const RETRIES = { maxRetry: 1, retryIntervalMs: 0, timeoutMs: PATIENCE_MS }; // LiveKit's own wait for seconds
const packages = { Cartesia, DeepgramClient, ElevenLabsClient, OpenAI, cartesia, deepgram, elevenlabs, openai };

/** `code` makes `audio`, or LiveKit's `tts`, which speaks in `turns`. */
async function heardOf({ code, turns = 1 }, said) {
    const made = ["audio", "tts"].map((name) => `${name}: typeof ${name} === "undefined" ? undefined : ${name}`);
    const run = new Function(...Object.keys(packages), `return (async () => { ${code}\nreturn { ${made} }; })()`);
    const { audio, tts } = await run(...Object.values(packages));
    if (tts === undefined) return [audio];
    tts.on("error", () => {}); // else it ends the process
    const heard = [];
    for (let turn = 0; turn < turns; turn++) heard.push(await spoken(tts, said));
    return heard;
}

/** Word by word, where it streams. */
async function spoken(tts, said) {
    const isStreaming = tts.capabilities.streaming;
    const stream = isStreaming ? tts.stream({ connOptions: RETRIES }) : tts.synthesize(said);
    if (isStreaming) {
        for (const word of said.split(" ")) stream.pushText(`${word} `);
        stream.endInput();
    }
    const frames = [];
    for await (const event of stream) {
        if (typeof event === "symbol") break; // END_OF_STREAM
        const { data } = event.frame;
        frames.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    }
    stream.close();
    return Buffer.concat(frames);
}

function withinPatience(promise) {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("nothing came")), PATIENCE_MS).unref());
    return Promise.race([promise, late]);
}

initializeLogger({ pretty: false, level: "silent" });
const { pieces, said } = JSON.parse(Buffer.concat(await Array.fromAsync(process.stdin)).toString());
const heard = {};
for (const [name, piece] of Object.entries(pieces)) {
    try {
        const turns = await withinPatience(heardOf(piece, said));
        heard[name] = turns.map((audio) => Buffer.from(audio).toString("base64"));
    } catch (error) {
        heard[name] = String(error?.message ?? error);
    }
}
process.stdout.write(JSON.stringify(heard), () => process.exit(0)); // LiveKit's native part would keep it
