// Speaks what is written into it, through a voicegate gateway, on this page's loudspeaker. Types are in player.d.ts.
//
//   import { Player } from "./player/player.js";
//   const player = new Player(); // of the gateway that serves this page; or {url: "wss://gate.example"}
//   button.onclick = async () => { // browsers let sound begin in a click or a key press
//     const context = player.open({ voice: "rms" });
//     for await (const piece of answer) if (!context.say(piece)) break;
//     context.end();
//     const { reason, spokenText } = await context.finished;
//   };
//   microphone.onspeech = () => player.interrupt(); // barge-in

import { Context } from "./context.js";
import { createOutput } from "./output.js";
import { START_MS } from "./playout.js";
import { streamUrl } from "./wire.js";

export { Context };

// What browsers count as a gesture that may start sound; a pointer that goes down does not.
const GESTURES = ["click", "keydown", "touchend"];

// As the protocol has them: of another one no answer comes that names it.
const CONTEXT_ID = /^(?:[^\p{C}\p{Z}]| ){1,64}$/u;

export class Player extends EventTarget {
  info = null;
  decoder = null;
  roundTripMs = null;
  audioContext = null;
  output = null;
  #startMs;
  #ownsAudioContext;
  #worker;
  #contexts = new Map();
  #numContexts = 0;
  #starting = null;
  #output = null; // {clear, close}; nothing sounds before there is one
  #hasWorker = false; // it has said something
  #fault = null; // why it never will
  #closing = null;
  #greet;
  #noteAudioState = () => this.#emit("audio", { state: this.audioContext.state });
  #resume = () => {
    if (document.visibilityState === "visible" && this.audioContext?.state !== "running") {
      this.audioContext?.resume().catch(() => {}); // not now; the next gesture tries again
    }
  };

  constructor({ url = location.origin, decoder = "auto", startMs = START_MS, audioContext = null } = {}) {
    super();
    const stream = streamUrl(new URL(url, location.href).href);
    this.#startMs = startMs;
    this.#ownsAudioContext = audioContext === null;
    this.audioContext = audioContext;
    this.ready = new Promise((resolve) => (this.#greet = resolve));
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = ({ message }) => this.#break(message ?? "the worker of the player cannot be loaded");
    this.#worker.postMessage({ type: "connect", url: stream, decoder });
  }

  get contexts() {
    return [...this.#contexts.values()];
  }

  start() {
    if (this.#closing !== null) return Promise.reject(new TypeError("the player is closed"));
    this.audioContext ??= new AudioContext();
    this.#resume(); // before anything is awaited: it counts only within the gesture
    this.#starting ??= this.#start().catch((error) => {
      this.#starting = null; // the next call tries again
      this.#emit("audio", { state: "broken", reason: error.message });
      throw error;
    });
    return this.#starting;
  }

  open({ id = this.#unusedId(), ...options } = {}) {
    if (this.#closing !== null) throw new TypeError("the player is closed");
    if (typeof id !== "string" || !CONTEXT_ID.test(id)) throw new TypeError("an id has 1 to 64 printable characters");
    if (this.#contexts.has(id)) throw new TypeError(`context ${id} is open already`);
    const plain = JSON.parse(JSON.stringify(options)); // not a framework's proxies, which no worker takes
    this.start().catch(() => {}); // told by the event
    const context = new Context(id, {
      send: (verb, ...args) => this.#worker.postMessage({ type: "send", context: id, verb, args }),
      cancel: (playedMs) => {
        this.#output?.clear(id);
        this.#worker.postMessage({ type: "cancel", context: id, playedMs });
      },
      latencyMs: () => (this.audioContext.outputLatency || this.audioContext.baseLatency || 0) * 1000,
    });
    this.#contexts.set(id, context);
    // The first to hear of it: whoever hears next may open another of this name.
    context.addEventListener("finished", () => this.#contexts.delete(id), { once: true });
    this.#worker.postMessage({ type: "open", context: id, options: plain });
    if (this.#fault !== null) queueMicrotask(() => this.#fail(context));
    return context;
  }

  interrupt() {
    return Promise.all(this.contexts.map((context) => context.cancel()));
  }

  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    const interrupted = this.interrupt();
    this.#worker.postMessage({ type: "close" }); // it answers for every context that still runs
    for (const gesture of GESTURES) document.removeEventListener(gesture, this.#resume, true);
    document.removeEventListener("visibilitychange", this.#resume);
    await interrupted;
    this.audioContext?.removeEventListener("statechange", this.#noteAudioState);
    this.#output?.close();
    if (this.#ownsAudioContext) await this.audioContext?.close();
  }

  async #start() {
    const audioContext = this.audioContext;
    audioContext.addEventListener("statechange", this.#noteAudioState);
    for (const gesture of GESTURES) document.addEventListener(gesture, this.#resume, true);
    document.addEventListener("visibilitychange", this.#resume);
    const output = await createOutput(audioContext, {
      startMs: this.#startMs,
      tell: (event) => this.#contexts.get(event.context)?.play(event),
    });
    if (this.#closing !== null) return output.close(); // meanwhile
    this.output = output.node;
    this.#output = output;
    const { port } = output;
    this.#worker.postMessage({ type: "audio", port, rateHz: audioContext.sampleRate }, [port]);
    this.#noteAudioState();
  }

  #unusedId() {
    let id;
    do id = `c${this.#numContexts++}`;
    while (this.#contexts.has(id));
    return id;
  }

  #break(reason) {
    this.#emit("connection", { state: "broken", reason });
    if (this.#hasWorker) return; // a fault in it, which goes on
    this.#fault = reason;
    for (const context of this.contexts) this.#fail(context);
  }

  #fail(context) {
    const { playedMs, underruns } = context;
    context.hear({ type: "failed", context: context.id, code: "broken", reason: this.#fault });
    context.play({ type: "ended", playedMs, bufferMs: 0, underruns });
  }

  #receive(event) {
    this.#hasWorker = true;
    switch (event.type) {
      case "connection":
        if (event.state === "ready") this.#greet((this.info = event.ready));
        return this.#emit("connection", { state: event.state, reason: event.reason, retryMs: event.retryMs });
      case "decoder":
        this.decoder = event.kind;
        return this.#emit("decoder", { kind: event.kind });
      case "roundTrip":
        this.roundTripMs = event.ms;
        return this.#emit("roundtrip", { ms: event.ms });
      case "received":
        return this.#contexts.get(event.context)?.receive(event);
      case "message":
        return this.#contexts.get(event.message.context)?.hear(event.message);
      case "failed":
        return this.#contexts.get(event.context)?.hear(event);
    }
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
