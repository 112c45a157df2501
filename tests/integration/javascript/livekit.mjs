// LiveKit's agents with the plugin of clients/livekit-node, for test_plugin_livekit_node.py: a plan comes in JSON, {urls,
// said}; what was heard of each trial goes out in JSON.

import { initializeLogger } from "@livekit/agents";
import { TTS } from "livekit-agents-plugin-voicegate";

const RETRIES = { maxRetry: 1, retryIntervalMs: 0, timeoutMs: 60_000 };
const { urls, said } = JSON.parse(Buffer.concat(await Array.fromAsync(process.stdin)).toString());
initializeLogger({ pretty: false, level: "silent" });

async function heardOf(stream, until = () => false) {
  const [audio, words] = [[], []];
  let isFinal = false;
  for await (const event of stream) {
    if (typeof event === "symbol") break; // END_OF_STREAM
    const { data } = event.frame;
    audio.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    words.push(...(event.timedTranscripts ?? []));
    isFinal = event.final;
    if (until(audio.length)) break;
  }
  const starts = words.map(({ startTime }) => startTime);
  const text = words.map((word) => word.text).join("");
  return { audio: Buffer.concat(audio).toString("base64"), text, starts, isFinal };
}

function written(tts, text) {
  const stream = tts.stream({ connOptions: RETRIES });
  for (const word of text.split(" ")) stream.pushText(`${word} `);
  stream.endInput();
  return stream;
}

async function withTts(url, options, use) {
  const tts = new TTS({ url, ...options });
  const errors = [];
  tts.on("error", ({ error }) => errors.push(error.message));
  const metrics = [];
  tts.on("metrics_collected", (each) => metrics.push(each));
  const heard = await use(tts);
  await tts.close();
  return { ...heard, errors, metrics };
}

const trials = {
  streamed: () => withTts(urls.whole, {}, (tts) => heardOf(written(tts, said))),
  whole: () => withTts(urls.whole, {}, (tts) => heardOf(tts.synthesize(said, RETRIES))),
  retried: () => withTts(urls.full, {}, (tts) => heardOf(written(tts, said))),
  refused: () => withTts(urls.whole, { voice: "nobody" }, (tts) => heardOf(written(tts, said))),
  absent: () => withTts("ws://127.0.0.1:9", {}, (tts) => heardOf(written(tts, said))),
  interrupted: () =>
    withTts(urls.slow, {}, async (tts) => {
      const stream = written(tts, said);
      const heard = await heardOf(stream, (numFrames) => numFrames === 10);
      stream.close();
      return heard;
    }),
};

const heard = {};
for (const [name, run] of Object.entries(trials)) heard[name] = await run();
process.stdout.write(JSON.stringify(heard), () => process.exit(0)); // LiveKit's native part would keep it
