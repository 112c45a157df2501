// Speaks what is written into it, through a voicegate gateway, on this page's loudspeaker. Types are in player.d.ts.
//
//   import { Player } from "./player/player.js";
//   const player = new Player(); // of the gateway that serves this page; or {url: "wss://gate.example"}
//   button.onclick = async () => { // browsers let sound begin in a click or a key press
//     const context = player.open({ voice: "woman" });
//     for await (const piece of answer) if (!context.say(piece)) break;
//     context.end();
//     const { reason, spokenText } = await context.finished;
//   };
//   microphone.onspeech = () => player.interrupt(); // barge-in

import { Context } from "./context.js";
import { createOutput } from "./output.js";
import { streamUrl } from "./wire.js";

export { Context };

// Lower begins sooner and runs dry on a worse network; higher the other way round.
const START_MS = 80;
const MAX_START_MS = 10_000;
const ENDS = ["done", "cancelled"]; // of a context, but for `failed`

// Gestures that browsers let start sound; a pointer that goes down does not.
const GESTURES = ["click", "keydown", "touchend"];

// As the protocol has them: of another one no answer comes that names it.
const CONTEXT_ID = /^(?:[^\p{C}\p{Z}]| ){1,64}$/u;

const STANDING_REPORT_MS = 250; // while nothing sounds; as often as contexts report that do

// The first read of `outputLatency` may never return in Firefox (153), and the tab freezes: the page holds a lock that the
// audio callback waits for, and waits for one that the callback holds. No moment of a running AudioContext is safe.
const FREEZES_AT_LATENCY = /\bGecko\/\d/;

// After a gesture an AudioContext runs. Lower takes a device that is slow to open for none; higher tells late.
const DEVICE_MS = 3_000;
const NO_DEVICE = "the browser finds no audio device that works";

export class Player extends EventTarget {
  info = null;
  decoder = null;
  roundTripMs = null;
  audioContext = null;
  output = null;
  #startMs;
  #ownsAudioContext;
  #connect; // what a worker is told first
  #worker = null;
  #contexts = new Map();
  #tracks = new Map(); // the same by number: what is still to come of one that has ended is not of the next of its name
  #numTracks = 0;
  #running = new Set(); // ids that mean something to the gateway: it has not said its last word of them
  #numContexts = 0;
  #starting = null;
  #output = null; // as createOutput gives it; nothing sounds before there is one
  #hasWorker = false; // it has said something
  #closing = null;
  #greet;
  #standing = null; // a timer, while nothing sounds
  #opening = null; // a timer, while a gesture has resumed the AudioContext and it does not run yet
  #noteAudioState = ({ target }) => {
    this.#emit("audio", { state: target.state });
    this.#reportStanding();
    if (target.state === "closed" && this.#closing === null) this.#loseOutput("the AudioContext was closed");
  };
  #resume = () => {
    if (document.visibilityState === "visible" && this.audioContext?.state !== "running") {
      this.audioContext?.resume().catch(() => {}); // not now; the next gesture tries again
      this.#awaitDevice();
    }
  };

  constructor({ url = location.origin, decoder = "auto", startMs = START_MS, audioContext = null } = {}) {
    super();
    if (!(startMs >= 0 && startMs <= MAX_START_MS)) throw new TypeError(`startMs is from 0 to ${MAX_START_MS}`);
    this.#connect = { type: "connect", url: streamUrl(new URL(url, location.href).href), decoder };
    this.#startMs = startMs;
    this.#ownsAudioContext = audioContext === null;
    this.audioContext = audioContext;
    this.ready = new Promise((resolve) => (this.#greet = resolve));
    this.#hire();
  }

  get contexts() {
    return [...this.#contexts.values()];
  }

  start() {
    if (this.#closing !== null) return Promise.reject(new TypeError("the player is closed"));
    this.audioContext ??= new AudioContext();
    this.#resume(); // before anything is awaited: it counts only within the gesture
    if (this.#starting === null) {
      const starting = this.#start().catch((error) => {
        this.#emit("audio", { state: "broken", reason: error.message });
        if (this.#starting === starting) this.#loseOutput(`there is no way to the loudspeaker: ${error.message}`);
        throw error;
      });
      this.#starting = starting;
    }
    return this.#starting;
  }

  open({ id = this.#unusedId(), ...options } = {}) {
    if (this.#closing !== null) throw new TypeError("the player is closed");
    if (typeof id !== "string" || !CONTEXT_ID.test(id)) throw new TypeError("an id has 1 to 64 printable characters");
    if (this.#contexts.has(id) || this.#running.has(id)) throw new TypeError(`context ${id} is open already`);
    const plain = JSON.parse(JSON.stringify(options)); // not a framework's proxies, which no worker takes
    if (this.#worker === null) this.#hire();
    this.start().catch(() => {}); // told by the event, and each context by its end
    const track = this.#numTracks++;
    const context = new Context(id, {
      send: (verb, ...args) => this.#worker?.postMessage({ type: "send", context: id, verb, args }),
      cancel: (playedMs) => this.#silence(id, track, playedMs),
      latencyMs: () => this.#latencyMs,
      nowMs: () => (this.audioContext?.currentTime ?? 0) * 1000,
    });
    this.#contexts.set(id, context);
    this.#tracks.set(track, context);
    this.#running.add(id);
    // The first to hear of it: whoever hears next may open another of this name.
    context.addEventListener("finished", () => this.#contexts.delete(id) && this.#tracks.delete(track), { once: true });
    this.#worker.postMessage({ type: "open", context: id, track, options: plain });
    this.#reportStanding();
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
    this.#worker?.postMessage({ type: "close" }); // it answers for every context that still runs
    for (const gesture of GESTURES) document.removeEventListener(gesture, this.#resume, true);
    document.removeEventListener("visibilitychange", this.#resume);
    await interrupted;
    clearInterval(this.#standing);
    clearTimeout(this.#opening);
    this.audioContext?.removeEventListener("statechange", this.#noteAudioState);
    this.#output?.close();
    if (this.#ownsAudioContext) await this.audioContext?.close();
  }

  async #start() {
    const { audioContext } = this;
    audioContext.addEventListener("statechange", this.#noteAudioState);
    for (const gesture of GESTURES) document.addEventListener(gesture, this.#resume, true);
    document.addEventListener("visibilitychange", this.#resume);
    const output = await createOutput(audioContext, {
      startMs: this.#startMs,
      tell: (event) => this.#tracks.get(event.context)?.play(event),
    });
    if (this.#closing !== null) return output.close(); // meanwhile
    this.output = output.node;
    this.#output = output;
    this.#attach();
    this.#emit("audio", { state: audioContext.state });
  }

  /** The worker learns where its samples go. */
  #attach() {
    if (this.#worker === null || this.#output === null) return;
    const port = this.#output.createPort();
    this.#worker.postMessage({ type: "audio", port, rateHz: this.audioContext.sampleRate }, [port]);
  }

  /** Open contexts will not sound; later ones try anew. */
  #loseOutput(reason) {
    this.audioContext?.removeEventListener("statechange", this.#noteAudioState);
    this.#output?.close();
    if (this.#output !== null) this.#worker?.postMessage({ type: "silence" });
    this.output = this.#output = this.#starting = null;
    if (this.#ownsAudioContext) {
      if (this.audioContext?.state !== "closed") this.audioContext?.close();
      this.audioContext = null;
    }
    for (const [track, context] of [...this.#tracks]) {
      this.#silence(context.id, track, Math.round(context.playedMs));
      context.break("no_sound", reason);
    }
  }

  #silence(id, track, playedMs) {
    this.#output?.clear(track);
    this.#worker?.postMessage({ type: "cancel", context: id, track, playedMs });
  }

  /** The gateway learns that nobody listens yet, or at present. */
  #reportStanding() {
    const isStanding = () => this.#contexts.size > 0 && this.audioContext !== null && !this.#isSounding;
    if (this.#standing !== null || !isStanding()) return;
    this.#standing = setInterval(() => {
      if (isStanding()) return this.contexts.forEach((context) => context.reportStanding());
      clearInterval(this.#standing);
      this.#standing = null;
    }, STANDING_REPORT_MS);
  }

  /** Without a device an AudioContext stays suspended (Firefox), as it does where sound is held back until a gesture. */
  #awaitDevice() {
    if (this.#opening !== null || navigator.userActivation?.isActive !== true) return;
    this.#opening = setTimeout(() => {
      this.#opening = null;
      if (this.audioContext?.state === "suspended") this.#emit("audio", { state: "suspended", reason: NO_DEVICE });
    }, DEVICE_MS);
  }

  get #latencyMs() {
    if (this.audioContext === null || FREEZES_AT_LATENCY.test(navigator.userAgent)) return 0;
    return (this.audioContext.outputLatency || this.audioContext.baseLatency || 0) * 1000;
  }

  get #isSounding() {
    return this.#output !== null && this.audioContext.state === "running";
  }

  #hire() {
    this.#hasWorker = false;
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = ({ message }) => this.#break(message ?? "the worker of the player cannot be loaded");
    this.#worker.postMessage(this.#connect);
    this.#attach();
  }

  #unusedId() {
    let id;
    do id = `c${this.#numContexts++}`;
    while (this.#contexts.has(id) || this.#running.has(id));
    return id;
  }

  #break(reason) {
    this.#emit("connection", { state: "broken", reason });
    if (this.#hasWorker) return; // a fault in it, which goes on
    this.#worker.terminate(); // what is opened next tries again, with another
    this.#worker = null;
    this.#running.clear();
    for (const context of this.contexts) context.break("broken", reason);
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
        return this.#tracks.get(event.track)?.receive(event);
      case "message":
        if (ENDS.includes(event.message.type)) this.#running.delete(event.message.context);
        return this.#contexts.get(event.message.context)?.hear(event.message);
      case "failed":
        if (event.isOver) this.#leave(event);
        return this.#tracks.get(event.track)?.hear(event);
      case "over":
        return this.#leave(event);
    }
  }

  /** Not where another has that name by now. */
  #leave({ context, track }) {
    if (this.#contexts.get(context) === this.#tracks.get(track)) this.#running.delete(context);
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
