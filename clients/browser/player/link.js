// One session with a gateway, from dialling to its end, over as many sockets as it takes: one that drops is replaced,
// and what was lost with it is sent again by both sides. See connection.js.

import { Delivery } from "./delivery.js";
import { encode, readMessage, SUBPROTOCOL, unpackAudio, WireError } from "./wire.js";

// A peer that has said nothing for so long, twice, is taken for gone: a network that vanishes tells nobody.
// Lower takes slow networks for dead ones; higher notices later.
const BEAT_MS = 10_000;
const DIAL_TIMEOUT_MS = 10_000;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000;
// A peer that is gone answers no close either, and only some WebSockets stop waiting by themselves.
const CLOSE_TIMEOUT_MS = 2_000;
const COMING_BACK = 4000; // our close code for a socket that seems dead
// No close frame; an unanswered ping; ours. Any other code ends the session.
const DROPPED = [1006, 1011, COMING_BACK];
const UNCOUNTED = ["ready", "pong", "ack", "resumed"];

export class Link {
  ready = null; // the server's greeting, once it is here
  #url;
  #on;
  #WebSocket;
  #subprotocols;
  #socket;
  #timer; // of whatever is waited for
  #delivery = new Delivery();
  #isUp = false;
  #readyAtMs = Infinity;
  #hasHeard = false;
  #lastWords = "";
  #isOver = false;
  #numRetries = 0;
  #giveUpAtMs = 0; // while it comes back

  /** `on`: {ready(), message(message), audio(audio), roundTrip(ms), isNeeded(), dropped(reason, retryMs), resumed(),
   * end(reason)}. `token`: a key or a token, which browsers can send among the subprotocols alone. */
  constructor(url, on, { WebSocket = globalThis.WebSocket, token = null } = {}) {
    this.#url = url;
    this.#on = on;
    this.#WebSocket = WebSocket;
    this.#subprotocols = token === null ? [SUBPROTOCOL] : [SUBPROTOCOL, "token", token];
    this.#dial();
  }

  /** Since the greeting. */
  get upMs() {
    return Math.max(0, performance.now() - this.#readyAtMs);
  }

  /** Messages of the moment go out now or never; others on the next socket, if there is to be one. */
  send(json, { isOfTheMoment = false } = {}) {
    if (this.#isResumable && !isOfTheMoment) this.#delivery.keep(json);
    if (this.#isUp) this.#socket.send(json);
  }

  /** Where a timer would wait longer. */
  dialNow() {
    if (this.ready !== null && this.#socket === null) this.#dial();
  }

  /** Resolves once the server has been told, or nobody is there. */
  close() {
    const socket = this.#socket;
    this.#end(["closed by this client"]);
    if (socket === null || socket.readyState === this.#WebSocket.CLOSED) return Promise.resolve();
    return new Promise((resolve) => {
      const waiting = setTimeout(resolve, CLOSE_TIMEOUT_MS);
      socket.onclose = () => {
        clearTimeout(waiting);
        resolve();
      };
    });
  }

  get #isResumable() {
    return this.ready !== null && this.ready.token !== "" && this.ready.limits.resume_seconds > 0;
  }

  /** With the session that is to be resumed: balancers on the way find its server by its id. */
  get #address() {
    if (this.ready === null) return this.#url;
    const address = new URL(this.#url, globalThis.location?.href);
    address.searchParams.set("session", this.ready.session);
    return address.href;
  }

  // --- sockets ------------------------------------------------------------------------------------------------

  #dial() {
    clearTimeout(this.#timer);
    this.#socket = null;
    let socket;
    try {
      socket = new this.#WebSocket(this.#address, this.#subprotocols);
    } catch (error) {
      // For ws on a page of https, say. Not in this turn: the maker of this link does not know it yet.
      this.#timer = setTimeout(() => this.#hasClosed(1006, [error.message]));
      return;
    }
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) => this.#hasClosed(code, [`close code ${code}`, reason, this.#lastWords]);
    // A socket that a page's policy forbids has no `close`.
    socket.onerror = () => this.#isUp || this.#hasClosed(1006, ["it cannot be reached, or refuses"]);
    this.#timer = setTimeout(() => this.#hasClosed(1006, ["no answer"]), DIAL_TIMEOUT_MS);
  }

  #leaveSocket(code) {
    clearTimeout(this.#timer);
    this.#isUp = false;
    if (this.#socket === null) return;
    this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.onerror = () => {}; // the `ws` of Node throws an error that nobody hears
    this.#socket.close(code);
    this.#socket = null;
  }

  #hasClosed(code, reasons) {
    if (this.#isOver) return;
    const isBack = this.#isUp;
    this.#leaveSocket(COMING_BACK);
    if (!this.#isResumable || !DROPPED.includes(code) || !this.#on.isNeeded()) return this.#end(reasons);
    const nowMs = performance.now();
    if (isBack) {
      this.#numRetries = 0;
      this.#giveUpAtMs = nowMs + this.ready.limits.resume_seconds * 1000;
    }
    if (nowMs >= this.#giveUpAtMs) return this.#end(reasons);
    const fullMs = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#numRetries++);
    const delayMs = fullMs * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#dial(), delayMs);
    this.#on.dropped(reasons.filter(Boolean).join("; "), delayMs);
  }

  #end(reasons) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#leaveSocket(1000);
    this.#on.end(reasons.filter(Boolean).join("; "));
  }

  // --- what comes ---------------------------------------------------------------------------------------------

  #receive(data) {
    this.#hasHeard = true;
    try {
      const message = data instanceof ArrayBuffer ? null : readMessage(data);
      if (message !== null && UNCOUNTED.includes(message.type)) return this.#readOwn(message);
      if (!this.#isUp) return this.#readAnswer(message);
      if (this.#isResumable && this.#delivery.noteReceived(data.byteLength ?? data.length)) this.#acknowledge();
      if (data instanceof ArrayBuffer) this.#on.audio(unpackAudio(data));
      else if (message !== null) this.#read(message);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.#end([`the server sent what this client cannot read: ${error.message}`]);
    }
  }

  #read(message) {
    if (message.type === "error" && message.context === undefined) this.#lastWords = message.message;
    this.#on.message(message);
  }

  /** Messages about the session itself, or the socket. */
  #readOwn(message) {
    switch (message.type) {
      case "ready":
        return this.ready === null ? this.#begin(message) : this.#askToResume();
      case "resumed":
        return this.#resume(message.received);
      case "ack":
        return this.#delivery.acknowledge(message.received);
      case "pong":
        return this.#on.roundTrip(performance.now() - message.t);
    }
  }

  #begin(ready) {
    this.ready = ready;
    this.#goUp();
    if (this.#isResumable) this.#acknowledge();
    this.#on.ready();
  }

  #goUp() {
    this.#isUp = true;
    this.#readyAtMs = performance.now();
    this.#hasHeard = true;
    clearTimeout(this.#timer);
    this.#timer = setInterval(() => this.#beat(), BEAT_MS);
    this.#ping();
  }

  #askToResume() {
    this.#socket.send(encode.resume(this.ready.session, this.ready.token, this.#delivery.numReceived));
  }

  /** On a socket that is not the session's yet. */
  #readAnswer(message) {
    if (message?.type === "error") this.#end([message.message]);
  }

  #resume(numReceived) {
    const lost = this.#delivery.rewind(numReceived);
    if (lost === null) return this.#end([`the server has ${numReceived} messages, which cannot be`]);
    this.#goUp();
    for (const json of lost) this.#socket.send(json);
    this.#on.resumed();
  }

  #acknowledge() {
    this.#delivery.noteAcknowledged();
    this.#socket.send(encode.ack(this.#delivery.numReceived));
  }

  #beat() {
    if (!this.#hasHeard) return this.#hasClosed(COMING_BACK, [`nothing heard for ${BEAT_MS / 1000} s`]);
    this.#hasHeard = false;
    this.#ping();
  }

  #ping() {
    this.#socket.send(encode.ping(performance.now()));
  }
}
