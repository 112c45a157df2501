// Keeps a link to the gateway up, and knows which context is on which: dials again when one ends or drains. A link comes
// back by itself where the gateway resumes; contexts that had been opened on one that ended have ended: nothing is said
// twice.

import { Link } from "./link.js";
import { encode, textPieces, WireError } from "./wire.js";

const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000; // lower loads a server that restarts; higher comes back later
// A link that did not stand so long counts as a failure, so that a server that drops all at once is not hammered.
const LASTING_MS = 5_000;
// Then contexts that wait for a link fail; dialling goes on. Lower fails them sooner; higher keeps them waiting.
const NUM_PATIENT_DIALS = 6;
// Links that may drop under one context before it is opened.
const NUM_OPENINGS = 3;

export class Connection {
  #url;
  #tell;
  #createStream;
  #dialing;
  #links = new Set();
  #link = null; // that new contexts are opened on
  #calls = new Map(); // contexts that run, by id
  #numFailures = 0;
  #redial = null;
  #isClosed = false;

  /** `tell` hears {type: "connection" | "message" | "failed" | "over" | "roundTrip"};
   * `createStream(track, onFailure)`; `dialing` is as Link takes it. */
  constructor(url, { tell, createStream, dialing = {} }) {
    this.#url = url;
    this.#tell = tell;
    this.#createStream = createStream;
    this.#dialing = dialing;
    this.#dial();
  }

  /** `track`: its number, which no other has, before or after. */
  open(context, track, options) {
    // Decoding takes longer than the server: the call may have ended, and another have its name.
    const stream = this.#createStream(track, (error) => this.#fail(call, "bad_audio", error.message));
    // `unopened`: all that was asked before the server has opened it, because it may take more than one link to do so.
    const call = { context, track, stream, link: null, handle: null, unopened: [], numOpenings: 0 };
    call.isCancelled = call.hasFailed = false;
    this.#calls.set(context, call);
    this.send(context, "open", options);
    this.#assign();
  }

  /** A verb of `encode`; of a context that has ended it is dropped. */
  send(context, verb, ...args) {
    const call = this.#calls.get(context);
    call?.unopened?.push([verb, args]);
    if (call?.link) this.#send(call, verb, args);
  }

  cancel(context, playedMs) {
    const call = this.#calls.get(context);
    if (call === undefined || call.isCancelled) return;
    call.isCancelled = true;
    call.stream.close();
    this.send(context, "cancel", playedMs);
  }

  /** Where a timer would wait longer. */
  dialNow() {
    if (this.#redial !== null) this.#dial();
    for (const link of this.#links) link.dialNow();
  }

  /** Resolves once servers have been told. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#redial);
    this.#redial = null;
    const closed = Promise.all([...this.#links].map((link) => link.close()));
    for (const call of this.#calls.values()) this.#lose(call, "it was closed here");
    return closed;
  }

  #send(call, verb, args) {
    if (verb === "playback") return call.link.send(encode.playback(call.context, ...args), { isOfTheMoment: true });
    if (verb !== "text") return call.link.send(encode[verb](call.context, ...args));
    for (const piece of textPieces(args[0], call.link.ready.limits.text_bytes)) {
      call.link.send(encode.text(call.context, piece));
    }
  }

  // --- links --------------------------------------------------------------------------------------------------

  #dial() {
    clearTimeout(this.#redial);
    this.#redial = null;
    this.#tell({ type: "connection", state: "connecting" });
    const on = {
      ready: () => this.#isReady(link),
      message: (message) => this.#receive(link, message),
      audio: (audio) => this.#hear(link, audio),
      roundTrip: (ms) => this.#tell({ type: "roundTrip", ms }),
      isNeeded: () => [...this.#calls.values()].some((call) => call.link === link),
      dropped: (reason, retryMs) => this.#tell({ type: "connection", state: "lost", reason, retryMs }),
      resumed: () => this.#tell({ type: "connection", state: "ready", ready: link.ready }),
      end: (reason) => this.#hasEnded(link, reason),
    };
    const link = new Link(this.#url, on, this.#dialing);
    this.#links.add(link);
  }

  #isReady(link) {
    this.#link = link;
    this.#tell({ type: "connection", state: "ready", ready: link.ready });
    this.#assign();
  }

  /** Gives contexts that wait to the link that is there. */
  #assign() {
    if (this.#link === null) return;
    for (const call of this.#calls.values()) {
      if (call.link !== null) continue;
      call.link = this.#link;
      call.numOpenings += 1;
      for (const [verb, args] of call.unopened) this.#send(call, verb, args);
    }
  }

  #hasEnded(link, reason) {
    this.#links.delete(link);
    for (const call of this.#calls.values()) {
      if (call.link !== link) continue;
      if (this.#mayOpenAgain(call)) call.link = null;
      else this.#lose(call, `the connection to the gateway was lost (${reason})`);
    }
    if (this.#isClosed) return;
    if (link.ready !== null && link !== this.#link) return this.#assign(); // another has taken over
    this.#link = null;
    this.#numFailures = link.upMs < LASTING_MS ? this.#numFailures + 1 : 0;
    if (this.#numFailures >= NUM_PATIENT_DIALS) {
      for (const call of this.#calls.values()) if (call.link === null) this.#lose(call, `cannot connect (${reason})`);
    }
    const delayMs = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#numFailures) * (0.5 + Math.random() / 2);
    this.#redial = setTimeout(() => this.#dial(), delayMs);
    this.#tell({ type: "connection", state: "lost", reason, retryMs: delayMs });
  }

  #mayOpenAgain(call) {
    return call.unopened !== null && !call.isCancelled && call.numOpenings < NUM_OPENINGS && !this.#isClosed;
  }

  // --- what the server says -----------------------------------------------------------------------------------

  #hear(link, audio) {
    const call = [...this.#calls.values()].find((other) => other.link === link && other.handle === audio.handle);
    if (call === undefined || call.isCancelled) return; // it was on its way
    try {
      call.stream.receive(audio);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.#fail(call, "bad_audio", error.message);
    }
  }

  #receive(link, message) {
    if (message.type === "draining" && link === this.#link) {
      this.#link = null; // contexts that run on it stay
      return this.#dial();
    }
    const call = this.#calls.get(message.context);
    if (call?.link !== link) return;
    switch (message.type) {
      case "opened":
        call.handle = message.handle;
        call.unopened = null;
        if (!call.isCancelled) call.stream.start(message);
        break;
      case "done":
      case "cancelled":
        this.#calls.delete(call.context);
        if (call.hasFailed) return this.#tell({ type: "over", context: call.context, track: call.track });
        break;
      case "error":
        // Text that crossed the cancel, or a cancel that crossed the end of the last context of this name; else text is
        // missing that the server refused, so that the context is useless.
        if (!message.fatal && (call.isCancelled || this.#isOfTheLast(call, message))) return;
        if (message.code === "overloaded" && link !== this.#link && this.#mayOpenAgain(call)) {
          call.link = null; // it crossed `draining`
          return this.#assign();
        }
        return this.#fail(call, message.code, message.message, {
          isOver: message.fatal,
          retryAfterMs: message.retry_after_ms,
        });
    }
    this.#tell({ type: "message", message });
  }

  #isOfTheLast(call, { code }) {
    return call.unopened !== null && code === "unknown_context";
  }

  /** Where the server does not know of it, `isOver` comes later: until then the name is taken there. */
  #fail(call, code, reason, { isOver = false, retryAfterMs = null } = {}) {
    const { context, track, stream } = call;
    const isRunning = this.#calls.get(context) === call;
    if (isRunning && isOver) this.#calls.delete(context);
    if (call.hasFailed) return void (isOver && this.#tell({ type: "over", context, track }));
    call.hasFailed = true;
    if (isRunning && !isOver && !call.isCancelled) this.send(context, "cancel");
    if (!call.isCancelled) stream.cutOff();
    call.isCancelled = true;
    const isSilent = stream.nextSequence === 0; // nothing has come that is still to be played
    this.#tell({ type: "failed", context, track, code, reason, retryAfterMs, isSilent, isOver: isOver || !isRunning });
  }

  #lose(call, reason) {
    this.#fail(call, "connection_lost", reason, { isOver: true });
  }
}
