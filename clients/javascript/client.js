// Speaks text through a voicegate gateway and gives the raw audio packets: for Node.js, and for pages without sound.
// Types are in client.d.ts. The wire, the resuming and the dialling again are those of the browser player.

import { Connection } from "voicegate-player/connection.js";
import { streamUrl } from "voicegate-player/wire.js";

import { Context } from "./context.js";
import { GateError } from "./errors.js";

export { Context, GateError };

// As the protocol has them: of another one no answer comes that names it.
const CONTEXT_ID = /^(?:[^\p{C}\p{Z}]| ){1,64}$/u;
const OPTIONS = [
  ...["voice", "format", "speed", "instruct", "seed", "mode", "leadMs", "language", "normalize"],
  ...["maxBufferDelayMs", "pronunciations"],
];
// Characters of a subprotocol (RFC 9110): browsers can send a token in no other way.
const SUBPROTOCOL = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const INQUIRY_TIMEOUT_MS = 5_000;

/** Node.js has a WebSocket of its own from 22 on. Before that it is given one, so that newer ones install none. */
export async function connect(url, { token = keyOfEnvironment(), WebSocket = globalThis.WebSocket } = {}) {
  if (typeof WebSocket !== "function") {
    throw new TypeError('no WebSocket here: connect(url, { WebSocket }), with that of the package "ws" in Node.js 20');
  }
  if (token !== null && !SUBPROTOCOL.test(token)) {
    throw new TypeError("the token has characters that no subprotocol may have: put it into the url as ?api_key=");
  }
  const gate = new Gate(streamUrl(url), { token, WebSocket });
  await gate.connected;
  return gate;
}

function keyOfEnvironment() {
  return globalThis.process?.env?.VOICEGATE_API_KEY || null;
}

export class Gate extends EventTarget {
  ready = null;
  numResumed = 0;
  #connection;
  #contexts = new Map(); // by id, until the gateway has said its last word of them
  #numContexts = 0;
  #closing = null;
  #greet;
  #refuse;

  constructor(url, dialing) {
    super();
    this.connected = new Promise((resolve, reject) => {
      this.#greet = resolve;
      this.#refuse = (reason) => {
        this.close();
        whyRefused(url, dialing.token, reason).then(reject);
      };
    });
    this.#connection = new Connection(url, {
      tell: (event) => this.#hear(event),
      createStream: (reception) => reception, // what `open` gave as the track
      dialing,
    });
  }

  async open({ id = this.#unusedId(), ...options } = {}) {
    if (this.#closing !== null) throw new GateError("closed", "the gate is closed");
    if (typeof id !== "string" || !CONTEXT_ID.test(id)) throw new TypeError("an id has 1 to 64 printable characters");
    if (this.#contexts.has(id)) throw new TypeError(`context ${id} is open already`);
    const unknown = Object.keys(options).filter((name) => !OPTIONS.includes(name));
    if (unknown.length > 0) throw new TypeError(`${unknown.join(", ")}: a context has no such option`);
    const plain = JSON.parse(JSON.stringify(options)); // what cannot be written throws here, and in no socket's event
    const context = new Context(id, {
      send: (verb, ...args) => this.#connection.send(id, verb, ...args),
      cancel: (playedMs) => this.#connection.cancel(id, playedMs),
    });
    this.#contexts.set(id, context);
    this.#connection.open(id, context.reception, plain);
    await context.waitOpened();
    return context;
  }

  async *speak(text, options = {}) {
    if (typeof text !== "string" && typeof text?.[Symbol.asyncIterator] !== "function") {
      throw new TypeError(`text is a ${typeof text}; it must be a string, or be iterated by \`for await\``);
    }
    const context = await this.open(options);
    const feeding = feed(context, text);
    feeding.catch(() => {}); // it is told below, unless the context says more
    try {
      yield* context;
      await feeding;
    } finally {
      context.abandon(); // where the listener has left the loop
    }
  }

  close() {
    this.#closing ??= this.#connection.close().then(() => {});
    return this.#closing;
  }

  #hear(event) {
    switch (event.type) {
      case "connection":
        return this.#noteConnection(event);
      case "message": {
        const { type, context: id } = event.message;
        const context = this.#contexts.get(id);
        if (type === "done" || type === "cancelled") this.#contexts.delete(id);
        return context?.hear(event.message);
      }
      case "failed": {
        const context = this.#contexts.get(event.context);
        if (event.isOver) this.#contexts.delete(event.context);
        return context?.fail(new GateError(event.code, event.reason, event.retryAfterMs));
      }
      case "over":
        return this.#contexts.delete(event.context);
    }
  }

  #noteConnection({ state, ready, reason, retryMs }) {
    if (state === "ready") {
      if (ready === this.ready) this.numResumed += 1;
      this.ready = ready;
      this.#greet();
    }
    if (state === "lost" && this.ready === null) this.#refuse(reason);
    this.dispatchEvent(new CustomEvent("connection", { detail: { state, reason, retryMs } }));
  }

  #unusedId() {
    let id;
    do id = `c${this.#numContexts++}`;
    while (this.#contexts.has(id));
    return id;
  }
}

/** Says all of `text` and ends. Where its source fails, the context is cancelled before the error goes on. */
async function feed(context, text) {
  try {
    for await (const piece of typeof text === "string" ? [text] : text) {
      if (context.isOver) return;
      context.say(piece);
    }
    if (!context.isOver) context.end();
  } catch (error) {
    context.abandon();
    throw error;
  }
}

/** A WebSocket does not tell why its handshake was refused; plain HTTP does. */
async function whyRefused(url, token, reason) {
  const address = new URL(url);
  address.protocol = address.protocol === "wss:" ? "https:" : "http:";
  address.pathname = address.pathname.replace(/stream$/, "capacity");
  try {
    const answer = await fetch(address, {
      headers: token === null ? {} : { Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(INQUIRY_TIMEOUT_MS),
    });
    const said = await answer.json();
    if (said.error) return new GateError(said.error.code, said.error.message);
    if (said.accepts === false) return new GateError("overloaded", said.reason, said.retry_after_ms);
  } catch {
    // It says nothing, or is no gateway.
  }
  return new GateError("connect_failed", `cannot connect to ${address.host}: ${reason}`);
}
