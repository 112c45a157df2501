// One stretch of speech as its user holds it: text in, packets out, and how it ended. Made by Gate.open. It must not
// know sockets.

import { heardLength, readAlignment, TextJoiner } from "voicegate-player/text.js";
import { CodePointCursor, wellFormed } from "voicegate-player/wire.js";

import { GateError } from "./errors.js";
import { Reception } from "./reception.js";

const MAX_FLUSH_ID_CHARS = 64; // docs/protocol.md, section 3

export class Context extends EventTarget {
  text = "";
  alignment = [];
  reception = new Reception({ news: () => this.#tell(), overflow: (numBytes) => this.#overflow(numBytes) });
  #host;
  #joiner = new TextJoiner();
  #unsent = ""; // said in this turn of the event loop; it leaves as one
  #hasTextEnded = false;
  #isCancelled = false;
  #cancelledAtMs = null; // where the listener was, as the gateway was told
  #ending = null; // of `finished`
  #finish;
  #waiting = []; // waiters for news
  #cursor = new CodePointCursor();

  /** `host`: {send(verb, ...args), cancel(playedMs)}. */
  constructor(id, host) {
    super();
    this.id = id;
    this.#host = host;
    this.finished = new Promise((resolve) => (this.#finish = resolve));
  }

  get opened() {
    const { voice, format, sample_rate: sampleRate, pre_skip: preSkip48k } = this.reception.opened;
    return { voice, codec: format.codec, frameMs: format.frame_ms, sampleRate, preSkip48k };
  }

  get endPts48k() {
    return this.reception.endPts48k;
  }

  // --- text in ------------------------------------------------------------------------------------------------

  say(text) {
    if (typeof text !== "string" && text !== null && text !== undefined) {
      throw new TypeError(`text is a ${typeof text}; it must be a string`);
    }
    this.#requireTextOpen("text");
    this.#sendText(this.#joiner.push(text ?? "")); // pieces of an answer may be none
  }

  flush(id = "") {
    if (typeof id !== "string" || [...id].length > MAX_FLUSH_ID_CHARS) {
      throw new TypeError(`the id of a flush has up to ${MAX_FLUSH_ID_CHARS} characters`);
    }
    this.#requireTextOpen("flush");
    this.#sendUnsent();
    this.#host.send("flush", id);
  }

  end() {
    this.#requireOpen();
    if (this.#hasTextEnded) return;
    this.#sendText(this.#joiner.finish());
    this.#sendUnsent();
    this.#hasTextEnded = true;
    this.#host.send("end");
  }

  async cancel({ playedMs = null } = {}) {
    const heardMs = playedMs === null ? null : wholeMs(playedMs, "playedMs");
    this.abandon(heardMs);
    const ending = await this.finished;
    if (ending.reason === "failed") throw ending.error;
    const { audioMs, spokenText = this.text, remainingText = "" } = ending;
    const isAsTold = ending.reason === "cancelled" && heardMs === this.#cancelledAtMs;
    if (heardMs === null || isAsTold || heardMs >= audioMs) return { audioMs, spokenText, remainingText };
    const at = heardLength(this.alignment, heardMs);
    return { audioMs, spokenText: this.text.slice(0, at), remainingText: this.text.slice(at) };
  }

  reportPlayback(playedMs, { bufferMs = 0, underruns = 0 } = {}) {
    const report = [wholeMs(playedMs, "playedMs"), wholeMs(bufferMs, "bufferMs"), wholeMs(underruns, "underruns")];
    if (this.#ending === null) this.#host.send("playback", ...report);
  }

  /** Cancel, without a wait for the gateway's word. */
  abandon(playedMs = null) {
    this.reception.close();
    if (this.#ending === null && !this.#isCancelled) {
      this.#sendUnsent();
      this.#isCancelled = true;
      this.#cancelledAtMs = playedMs;
      this.#host.cancel(playedMs);
    }
    this.#tell();
  }

  #sendText(text) {
    if (text === "") return;
    const sent = wellFormed(text);
    this.text += sent;
    if (this.#unsent === "") queueMicrotask(() => this.#sendUnsent());
    this.#unsent += sent;
  }

  #sendUnsent() {
    if (this.#unsent !== "" && !this.isOver) this.#host.send("text", this.#unsent);
    this.#unsent = "";
  }

  #requireTextOpen(what) {
    this.#requireOpen();
    if (this.#hasTextEnded) throw new TypeError(`context ${this.id} takes no ${what} after end()`);
  }

  #requireOpen() {
    if (this.#ending?.reason === "failed") throw this.#ending.error;
    if (this.isOver) throw new GateError("closed", `context ${this.id} has ended`);
  }

  // --- audio out ----------------------------------------------------------------------------------------------

  async *[Symbol.asyncIterator]() {
    while (true) {
      const packet = this.reception.read();
      if (packet !== undefined) yield packet;
      else if (this.#ending?.reason === "failed") throw this.#ending.error;
      else if (this.isOver) return;
      else await this.#news();
    }
  }

  // --- called by the gate -------------------------------------------------------------------------------------

  get isOver() {
    return this.#isCancelled || this.#ending !== null;
  }

  /** Throws how it failed. */
  async waitOpened() {
    while (this.reception.opened === null && this.#ending === null) await this.#news();
    if (this.#ending?.reason === "failed") throw this.#ending.error;
  }

  /** A message of the server. */
  hear(message) {
    switch (message.type) {
      case "alignment": {
        const items = readAlignment(message.items, this.text, this.#cursor);
        this.alignment.push(...items);
        this.#emit("alignment", { items });
        break;
      }
      case "flushed":
        this.#emit("flushed", { id: message.id, audioMs: message.audio_ms });
        break;
      case "done":
        this.#end({ reason: "done", audioMs: message.audio_ms, isTruncated: message.truncated === true });
        break;
      case "cancelled": {
        const { audio_ms: audioMs, spoken_text: spokenText, remaining_text: remainingText } = message;
        this.#end({ reason: "cancelled", audioMs, spokenText, remainingText });
        break;
      }
    }
    this.#tell();
  }

  fail(error) {
    this.#end({ reason: "failed", error });
    this.#tell();
  }

  #overflow(numBytes) {
    this.abandon();
    this.fail(new GateError("reader_too_slow", `${numBytes} bytes of audio were waiting to be read`));
  }

  #end(ending) {
    if (this.#ending !== null) return;
    this.#ending = ending;
    this.#finish(ending);
    this.#emit("finished", ending);
  }

  /** Wakes waiters for news of any kind: each looks whether it is its own. */
  #news() {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #tell() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** As the server takes it: players' clocks have fractions. */
function wholeMs(value, name) {
  if (typeof value !== "number" || !(value >= 0 && value <= Number.MAX_SAFE_INTEGER)) {
    throw new TypeError(`${name} is ${value}; it must be a number from 0`);
  }
  return Math.round(value);
}
