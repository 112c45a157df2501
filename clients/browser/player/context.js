// One stretch of speech as the page holds it: text in, where the listener is, how it ended. Made by Player.open. It
// must not know sockets or audio nodes.

import { CodePointCursor, isHighSurrogate } from "./wire.js";

const REPORT_MS = 250; // how often the server is told where the listener is
const PADDING_MS = 60; // that a packet may have behind the last word

export class Context extends EventTarget {
  text = "";
  voice = null;
  alignment = [];
  playedMs = 0;
  bufferMs = 0;
  underruns = 0;
  timing = { firstPacketMs: null, firstSoundMs: null, serverMs: null };
  #host;
  #half = ""; // first half of a character whose second has not come
  #hasTextEnded = false;
  #firstTextAtMs = null;
  #cursor = new CodePointCursor();
  #answer = null; // the server's last word: a message, or {type: "failed", code, reason}
  #isCancelled = false;
  #hasPlayed = false;
  #decodedMs = 0;
  #reportedAtMs = 0;
  #finish;

  /** `host`: {send(verb, ...args), cancel(playedMs), latencyMs()}. */
  constructor(id, host) {
    super();
    this.id = id;
    this.#host = host;
    this.finished = new Promise((resolve) => (this.#finish = resolve));
  }

  /** Once all is known, without what only fills the last packet. */
  get receivedMs() {
    return Math.min(this.#decodedMs, this.#answer?.audio_ms ?? Infinity);
  }

  // --- text in ------------------------------------------------------------------------------------------------

  say(text) {
    if (this.#hasTextEnded) throw new TypeError(`context ${this.id} takes no text after end()`);
    if (this.#isOver) return false;
    const all = this.#half + (text ?? ""); // pieces of an answer may be none
    const numWhole = all.length - (all !== "" && isHighSurrogate(all, all.length - 1) ? 1 : 0);
    this.#half = all.slice(numWhole);
    this.#sendText(all.slice(0, numWhole));
    return true;
  }

  flush(id = "") {
    if (!this.#isOver) this.#host.send("flush", id);
  }

  end() {
    if (this.#hasTextEnded || this.#isOver) return;
    this.#sendText(this.#half);
    this.#hasTextEnded = true;
    this.#host.send("end");
  }

  cancel() {
    if (!this.#isCancelled && !this.#isFinished) {
      this.#isCancelled = true;
      this.#host.cancel(Math.round(this.playedMs));
      this.#settle();
    }
    return this.finished;
  }

  /** What is sent is well-formed, as the protocol asks; JavaScript's strings need not be. */
  #sendText(text) {
    if (text === "") return;
    const sent = text.replace(/\p{Surrogate}/gu, "\ufffd");
    if (this.#firstTextAtMs === null && sent.trim() !== "") this.#firstTextAtMs = nowMs();
    this.text += sent;
    this.#host.send("text", sent);
  }

  // --- what comes; called by the player -----------------------------------------------------------------------

  /** A message of the server, or {type: "failed", code, reason}. */
  hear(message) {
    switch (message.type) {
      case "opened":
        this.voice = message.voice;
        return this.#emit("opened", message);
      case "flushed":
        return this.#emit("flushed", { id: message.id, audioMs: message.audio_ms });
      case "alignment":
        return this.#align(message.items);
      default:
        this.#answer = message;
        this.timing.serverMs = message.timing?.ttfb_ms ?? null;
        if (message.type === "failed" && !this.#isCancelled) this.#emit("failed", this.#error);
        return this.#settle();
    }
  }

  receive({ atMs, startMs, durationMs, peaks }) {
    this.timing.firstPacketMs ??= this.#sinceFirstText(atMs);
    this.#decodedMs = startMs + durationMs;
    this.#emit("received", { startMs, durationMs, peaks });
  }

  /** An event of Playout. */
  play({ type, playedMs, bufferMs, underruns }) {
    if (this.#isCancelled) return; // what was heard is settled
    const hasPlayedAll = type === "ended";
    const latencyMs = this.#host.latencyMs();
    this.playedMs = hasPlayedAll ? playedMs : Math.max(this.playedMs, playedMs - latencyMs);
    this.bufferMs = bufferMs;
    this.underruns = underruns;
    if (type === "started") this.timing.firstSoundMs ??= this.#sinceFirstText(nowMs() + latencyMs);
    this.#report(type !== "position");
    this.#emit(type, { playedMs: this.playedMs, bufferMs, underruns });
    this.#hasPlayed = hasPlayedAll;
    this.#settle();
  }

  #align(items) {
    const added = items.map((item) => ({
      text: item.text,
      startMs: item.start_ms,
      endMs: item.end_ms,
      start: this.#cursor.indexAt(this.text, item.char_start),
      end: this.#cursor.indexAt(this.text, item.char_end),
    }));
    this.alignment.push(...added);
    this.#emit("alignment", { items: added });
  }

  #report(isUrgent) {
    if (!isUrgent && nowMs() - this.#reportedAtMs < REPORT_MS) return;
    this.#reportedAtMs = nowMs();
    this.#host.send("playback", Math.round(this.playedMs), Math.round(this.bufferMs), this.underruns);
  }

  // --- the end ------------------------------------------------------------------------------------------------

  get #isOver() {
    return this.#isCancelled || this.#answer !== null;
  }

  get #isFinished() {
    return this.#answer !== null && (this.#hasPlayed || this.#isCancelled);
  }

  get #error() {
    if (this.#answer.type !== "failed" || this.#isCancelled) return null;
    return { code: this.#answer.code, message: this.#answer.reason, retryAfterMs: this.#answer.retryAfterMs ?? null };
  }

  #settle() {
    if (!this.#isFinished) return;
    const [spokenText, remainingText] = this.#split();
    const result = {
      reason: this.#isCancelled ? "cancelled" : this.#answer.type,
      error: this.#error,
      audioMs: this.#answer.audio_ms ?? this.receivedMs,
      playedMs: this.playedMs,
      underruns: this.underruns,
      isTruncated: this.#answer.truncated === true,
      spokenText,
      remainingText,
      timing: this.timing,
    };
    this.#finish(result);
    this.#emit("finished", result);
  }

  /** The text in two, at what was heard. The server knows best, where it was asked in time. */
  #split() {
    const answer = this.#answer;
    if (answer.type === "cancelled") return [answer.spoken_text, answer.remaining_text];
    // One is counted in samples of the loudspeaker's rate, the other in whole milliseconds.
    const hasHeardAll = answer.type === "done" && this.playedMs > answer.audio_ms - 1;
    const heard = this.alignment.filter(({ endMs }, index, items) => {
      // A word is said until the next one begins. Of the last one that was told before a connection was lost nobody
      // knows, where more has come than it was certain to last.
      const isCertain = answer.type === "done" || this.receivedMs <= endMs + PADDING_MS;
      const saidUntilMs = items[index + 1]?.startMs ?? (isCertain ? 0 : Infinity);
      return Math.max(endMs, saidUntilMs) <= this.playedMs;
    });
    const at = hasHeardAll ? this.text.length : (heard.at(-1)?.end ?? 0);
    return [this.text.slice(0, at), this.text.slice(at)];
  }

  #sinceFirstText(atMs) {
    return this.#firstTextAtMs === null ? null : atMs - this.#firstTextAtMs;
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** On the clock that pages and workers share. */
function nowMs() {
  return performance.timeOrigin + performance.now();
}
