// One WebSocket to a gateway, from dialling to its end. Used up when it closes; see connection.js.

import { encode, readMessage, SUBPROTOCOL, unpackAudio, WireError } from "./wire.js";

// A peer that has said nothing for so long, twice, is taken for gone: a network that vanishes tells nobody.
// Lower takes slow networks for dead ones; higher notices later.
const BEAT_MS = 10_000;
const DIAL_TIMEOUT_MS = 10_000;

export class Link {
  ready = null; // the server's greeting, once it is here
  #socket;
  #on;
  #timer;
  #readyAtMs = Infinity;
  #hasHeard = false;
  #lastWords = "";
  #isOver = false;

  /** `on`: {ready(), message(message), audio(audio), roundTrip(ms), end(reason)}. */
  constructor(url, on) {
    this.#on = on;
    this.#socket = new WebSocket(url, [SUBPROTOCOL]);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = ({ code, reason }) => this.#end([`close code ${code}`, reason, this.#lastWords]);
    // Of what a page's policy forbids there is no `close`.
    this.#socket.onerror = () => this.ready ?? this.#end(["it cannot be reached, or refuses"]);
    this.#timer = setTimeout(() => this.#end(["no answer"]), DIAL_TIMEOUT_MS);
  }

  /** Since the greeting. */
  get upMs() {
    return Math.max(0, performance.now() - this.#readyAtMs);
  }

  send(json) {
    this.#socket.send(json);
  }

  close() {
    this.#end(["closed by this client"]);
  }

  #receive(data) {
    this.#hasHeard = true;
    try {
      if (data instanceof ArrayBuffer) this.#on.audio(unpackAudio(data));
      else this.#read(readMessage(data));
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.#end([`the server sent what this client cannot read: ${error.message}`]);
    }
  }

  #read(message) {
    if (message?.type === "ready") {
      this.ready = message;
      this.#readyAtMs = performance.now();
      clearTimeout(this.#timer);
      this.#timer = setInterval(() => this.#beat(), BEAT_MS);
      this.#ping();
      this.#on.ready();
    } else if (message?.type === "pong") {
      this.#on.roundTrip(performance.now() - message.t);
    } else if (message !== null) {
      if (message.type === "error" && message.context === undefined) this.#lastWords = message.message;
      this.#on.message(message);
    }
  }

  #beat() {
    if (!this.#hasHeard) return this.#end([`nothing heard for ${BEAT_MS / 1000} s`]);
    this.#hasHeard = false;
    this.#ping();
  }

  #ping() {
    this.send(encode.ping(performance.now()));
  }

  #end(reasons) {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer); // whichever kind it is
    this.#socket.onmessage = this.#socket.onclose = this.#socket.onerror = null;
    this.#socket.close();
    this.#on.end(reasons.filter(Boolean).join("; "));
  }
}
