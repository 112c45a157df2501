// A TTS of LiveKit Agents over voicegate's own protocol: a stream of LiveKit's is one context of the server. Types are in
// tts.d.ts. Words come with their times, so that after an interruption the conversation holds what was heard.

import { APIConnectionError, APIError, APIStatusError, AudioByteStream, createTimedString, tts } from "@livekit/agents";
import { connect, GateError } from "voicegate";

// Rate of all models that voicegate serves; another would be told by the server, and is checked.
const RATE_HZ = 24_000;
const FRAME_SAMPLES = RATE_HZ / 50;
// Codes of a failed context that another try may mend. LiveKit tries again from 500 on, and below not.
const MAY_SUCCEED_LATER = ["overloaded", "rate_limited", "too_many_contexts", "engine_failed"];
// No word of the server's: it could not be reached, or was lost.
const CONNECTION = ["connect_failed", "connection_lost", "closed"];

export class TTS extends tts.TTS {
  label = "voicegate.TTS";
  #url;
  #dialing;
  #options;
  #entering = null;

  constructor({ url = "ws://127.0.0.1:8080", token, WebSocket, ...options } = {}) {
    super(RATE_HZ, 1, { streaming: true, alignedTranscript: true });
    this.#url = url;
    this.#dialing = { token, WebSocket };
    this.updateOptions(options);
  }

  get provider() {
    return "voicegate";
  }

  updateOptions({ voice, language, speed, instruct, ...unknown }) {
    const names = Object.keys(unknown);
    if (names.length > 0) throw new TypeError(`${names.join(", ")}: this TTS has no such option`);
    const given = Object.entries({ voice, language, speed, instruct }).filter(([, value]) => value !== undefined);
    this.#options = { ...this.#options, ...Object.fromEntries(given) };
  }

  synthesize(text, connOptions, abortSignal) {
    return new ChunkedStream(this, text, connOptions, abortSignal);
  }

  stream({ connOptions } = {}) {
    return new SynthesizeStream(this, connOptions);
  }

  async close() {
    const entering = this.#entering;
    this.#entering = null;
    if (entering !== null) await entering.then((gate) => gate.close()).catch(() => {}); // it had failed
  }

  /** A context. Connects once; the client connects again by itself. One that failed is tried again. */
  async open() {
    const entering = (this.#entering ??= connect(this.#url, this.#dialing));
    let gate;
    try {
      gate = await entering;
    } catch (error) {
      if (this.#entering === entering) this.#entering = null;
      throw error;
    }
    return gate.open({ ...this.#options, format: { codec: "pcm_s16le" } });
  }
}

class SynthesizeStream extends tts.SynthesizeStream {
  label = "voicegate.SynthesizeStream";
  #tts;
  #texts = []; // all, for another attempt
  #isWhole = false;
  #context = null; // of this attempt
  #collecting = null;
  #hasText = later();
  #hasSpoken = false;

  constructor(owner, connOptions) {
    super(owner, connOptions);
    this.#tts = owner;
  }

  async run() {
    this.#collecting ??= this.#collect();
    await this.#hasText.promise;
    if (this.#texts.length === 0) return;
    this.markStarted();
    try {
      await speak(await this.#tts.open(), this.abortController.signal, {
        begin: (context) => {
          for (const text of this.#texts) context.say(text);
          if (this.#isWhole) context.end();
          this.#context = context;
        },
        put: (audio) => {
          this.#hasSpoken = true;
          if (!this.queue.closed) this.queue.put(audio);
        },
      });
      if (!this.queue.closed) this.queue.put(tts.SynthesizeStream.END_OF_STREAM);
    } catch (error) {
      throw asLiveKits(error, { hasSpoken: this.#hasSpoken });
    } finally {
      this.#context = null;
    }
  }

  /** One reader of the input for all attempts. A flush of LiveKit's stands at its end alone. */
  async #collect() {
    for await (const text of this.input) {
      if (typeof text !== "string" || text === "") continue;
      this.#texts.push(text);
      if (this.#context !== null && !this.#context.isOver) this.#context.say(text);
      this.#hasText.resolve();
    }
    this.#isWhole = true;
    if (this.#context !== null && !this.#context.isOver) this.#context.end();
    this.#hasText.resolve();
  }
}

class ChunkedStream extends tts.ChunkedStream {
  label = "voicegate.ChunkedStream";
  #tts;
  #text;

  constructor(owner, text, connOptions, abortSignal) {
    super(text, owner, connOptions, abortSignal);
    this.#tts = owner;
    this.#text = text;
  }

  async run() {
    try {
      await speak(await this.#tts.open(), this.abortSignal, {
        begin: (context) => {
          context.say(this.#text);
          context.end();
        },
        put: (audio) => !this.queue.closed && this.queue.put(audio),
      });
    } catch (error) {
      throw asLiveKits(error, { hasSpoken: false }); // what came of this attempt is dropped
    }
  }
}

/** All audio of a context, with the words that begin in it. Once `signal` aborts, the context is cancelled. */
async function speak(context, signal, { begin, put }) {
  const abandon = () => void context.cancel().catch(() => {});
  signal.addEventListener("abort", abandon, { once: true });
  try {
    if (signal.aborted) return;
    const { sampleRate } = context.opened;
    if (sampleRate !== RATE_HZ) throw new APIError(`the server speaks at ${sampleRate} Hz`, { retryable: false });
    const frames = new AudioByteStream(RATE_HZ, 1, FRAME_SAMPLES);
    let numTold = 0;
    let last = null; // it is told with the word that it is the last
    const tell = (frame, final) => {
      const words = context.alignment.slice(numTold).map((item, index) => wordOf(context, numTold + index, item));
      numTold += words.length;
      if (final && numTold > 0) words.push(...restOf(context));
      put({ requestId: context.id, segmentId: context.id, frame, final, timedTranscripts: words });
    };
    begin(context);
    for await (const { data } of context) {
      for (const frame of frames.write(data)) {
        if (last !== null) tell(last, false);
        last = frame;
      }
    }
    for (const frame of frames.flush()) {
      if (last !== null) tell(last, false);
      last = frame;
    }
    if (last !== null && !signal.aborted) tell(last, true);
  } finally {
    signal.removeEventListener("abort", abandon);
    abandon(); // nothing, where it has ended
  }
}

/** LiveKit adds no blanks: each word has what stands between it and the one before. */
function wordOf(context, number, { startMs, endMs, end }) {
  const start = number === 0 ? 0 : context.alignment[number - 1].end;
  return createTimedString({ text: context.text.slice(start, end), startTime: startMs / 1000, endTime: endMs / 1000 });
}

/** What follows the last word and is not said, such as a link. */
function restOf(context) {
  const { end, endMs } = context.alignment.at(-1);
  const text = context.text.slice(end);
  return text.trim() === "" ? [] : [createTimedString({ text, startTime: endMs / 1000, endTime: endMs / 1000 })];
}

/** Which LiveKit tries again, where that can help, and nothing would be said twice. */
function asLiveKits(error, { hasSpoken }) {
  if (!(error instanceof GateError)) return error;
  const { code, message } = error;
  const retryable = !hasSpoken && (CONNECTION.includes(code) || MAY_SUCCEED_LATER.includes(code));
  if (CONNECTION.includes(code)) return new APIConnectionError({ message, options: { retryable } });
  return new APIStatusError({ message, options: { statusCode: retryable ? 503 : 400, retryable } });
}

/** Promise.withResolvers, which Node.js 20 does not have. */
function later() {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
}
