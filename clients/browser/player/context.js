// One stretch of speech as the page holds it: text in, where the listener is, how it ended. Made by Player.open. It
// must not know sockets or audio nodes.

import { heardLength, readAlignment, TextJoiner } from "./text.js";
import { CodePointCursor, wellFormed } from "./wire.js";

const REPORT_MS = 250; // how often the server is told where the listener is
const PADDING_MS = 60; // that a packet may have behind the last word
// How long a cancel waits for the gateway to say where the text stood. Lower asks slow networks in vain; higher is late
// where there is no network.
const ANSWER_MS = 2_000;
// A loudspeaker this far behind (Bluetooth) is waited for at the end. Lower waits for what nobody notices, and in hidden
// tabs, where timers are slow, longer than that; higher tells of an end before it is heard.
const NOTICED_MS = 100;

export class Context extends EventTarget {
  text = "";
  voice = null;
  alignment = [];
  playedMs = 0;
  bufferMs = 0;
  underruns = 0;
  timing = { firstPacketMs: null, firstSoundMs: null, serverMs: null };
  #host;
  #joiner = new TextJoiner();
  #unsent = ""; // said in this turn of the page; it leaves as one
  #hasTextEnded = false;
  #firstTextAtMs = null;
  #cursor = new CodePointCursor();
  #answer = null; // the server's last word: a message, or {type: "failed", code, reason}
  #isCancelled = false;
  #hasPlayed = false;
  #decodedMs = 0;
  #position = { playedMs: 0, bufferMs: 0, atMs: 0, isMoving: false }; // as it was told last
  #reportedAtMs = 0;
  #finish;

  /** `host`: {send(verb, ...args), cancel(playedMs), latencyMs(), nowMs()}, `nowMs` on the clock of `play`. */
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
    this.#sendText(this.#joiner.push(text ?? "")); // pieces of an answer may be none
    return true;
  }

  flush(id = "") {
    if (this.#hasTextEnded || this.#isOver) return; // all of it is spoken without waiting for more as it is
    this.#sendUnsent();
    this.#host.send("flush", id);
  }

  end() {
    if (this.#hasTextEnded || this.#isOver) return;
    this.#sendText(this.#joiner.finish());
    this.#sendUnsent();
    this.#hasTextEnded = true;
    this.#host.send("end");
  }

  cancel() {
    if (!this.#isCancelled && !this.#isFinished) {
      this.#sendUnsent();
      this.playedMs = this.#heardMs();
      this.#isCancelled = true;
      this.#host.cancel(Math.round(this.playedMs));
      this.#settle();
      setTimeout(() => this.#answer ?? this.hear({ type: "unanswered" }), ANSWER_MS);
    }
    return this.finished;
  }

  #sendText(text) {
    if (text === "") return;
    const sent = wellFormed(text);
    if (this.#firstTextAtMs === null && sent.trim() !== "") this.#firstTextAtMs = nowMs();
    this.text += sent;
    if (this.#unsent === "") queueMicrotask(() => this.#sendUnsent());
    this.#unsent += sent;
  }

  #sendUnsent() {
    if (this.#unsent !== "") this.#host.send("text", this.#unsent);
    this.#unsent = "";
  }

  // --- what comes; called by the player -----------------------------------------------------------------------

  /** A message of the server, {type: "failed", code, reason}, or {type: "unanswered"}. */
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
        this.#hasPlayed ||= message.audio_ms === 0 || message.isSilent === true; // there is nothing to wait for
        if (message.type === "failed" && !this.#isCancelled) this.#emit("failed", this.#error);
        return this.#settle();
    }
  }

  /** Nothing of it will sound any more. */
  break(code, reason) {
    this.hear({ type: "failed", code, reason, isSilent: true });
  }

  receive({ atMs, startMs, durationMs, peaks }) {
    this.timing.firstPacketMs ??= this.#sinceFirstText(atMs);
    this.#decodedMs = startMs + durationMs;
    this.#emit("received", { startMs, durationMs, peaks });
  }

  /** An event of Playout, which happened at `atMs`. */
  play({ type, playedMs, bufferMs, underruns, atMs }) {
    if (this.#isCancelled) return; // what was heard is settled
    const latencyMs = this.#host.latencyMs();
    const isMoving = type === "position" ? this.#position.isMoving : type !== "underrun";
    this.#position = { playedMs, bufferMs, atMs, isMoving };
    this.bufferMs = bufferMs;
    this.underruns = underruns;
    if (type === "ended") {
      if (latencyMs < NOTICED_MS) return this.#endPlaying();
      return void setTimeout(() => this.#isCancelled || this.#isFinished || this.#endPlaying(), latencyMs);
    }
    this.playedMs = Math.max(this.playedMs, playedMs - latencyMs);
    if (type === "started") this.timing.firstSoundMs ??= this.#sinceFirstText(nowMs() + latencyMs);
    this.#report(type !== "position");
    this.#emit(type, { playedMs: this.playedMs, bufferMs, underruns });
  }

  #endPlaying() {
    this.playedMs = this.#position.playedMs;
    this.#report(true);
    this.#emit("ended", { playedMs: this.playedMs, bufferMs: this.bufferMs, underruns: this.underruns });
    this.#hasPlayed = true;
    this.#settle();
  }

  /** The page may have been busy since it was told. */
  #heardMs() {
    const { playedMs, bufferMs, atMs, isMoving } = this.#position;
    if (!isMoving) return this.playedMs;
    const sincePlayedMs = Math.max(0, this.#host.nowMs() - atMs);
    const latencyMs = this.#host.latencyMs();
    // At the end what was to be played is in the device, and goes on to be heard.
    return Math.max(this.playedMs, Math.min(playedMs + sincePlayedMs - latencyMs, playedMs + bufferMs));
  }

  /** Nothing sounds at present: the gateway, told of no progress, makes no more than the listener's lead. */
  reportStanding() {
    if (this.#isOver || this.receivedMs <= this.playedMs) return;
    const bufferMs = Math.round(this.receivedMs - this.playedMs);
    this.#host.send("playback", Math.round(this.playedMs), bufferMs, this.underruns);
  }

  #align(items) {
    const added = readAlignment(items, this.text, this.#cursor);
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
    // How long the last word is said that was told before a connection was lost nobody knows, where more has come than
    // it was certain to last.
    const isCertain = answer.type === "done" || this.receivedMs <= (this.alignment.at(-1)?.endMs ?? 0) + PADDING_MS;
    const heard = heardLength(this.alignment, this.playedMs, isCertain ? 0 : Infinity);
    const at = hasHeardAll ? this.text.length : heard;
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
