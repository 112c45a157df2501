// Types of player.js: the whole of what a page may use. Times are in milliseconds.

import type { AlignedText, OpenOptions, Ready } from "./wire.js";

export type { AlignedText, OpenOptions, Ready };

export interface PlayerOptions {
  /** The gateway's URL: ws, wss, http or https; with a slash at its end where a proxy has it in a folder
   * (https://site.example/voice/). Default: the one that serves this page. */
  url?: string;
  /** Default "auto": the browser's own where it proves to work, else the vendored one. */
  decoder?: "auto" | "webcodecs" | "wasm";
  /** Audio that is there before a context begins to sound; default 80, at most 10,000. Lower begins sooner and runs dry
   * more often. */
  startMs?: number;
  /** One of the page's own, which the player then does not close. Of any sample rate. */
  audioContext?: AudioContext;
}

export interface PlayerEventMap {
  /** "broken": the player's files cannot be had. "lost" is dialled again after `retryMs`, for as long as it takes. */
  connection: CustomEvent<{ state: "connecting" | "ready" | "lost" | "broken"; reason?: string; retryMs?: number }>;
  /** "suspended" or "interrupted": nothing is heard until the user touches the page. "suspended" with a `reason`: the user
   * did, and there is no audio device that works; where one comes, sound begins. */
  audio: CustomEvent<{ state: AudioContextState | "interrupted" | "broken"; reason?: string }>;
  decoder: CustomEvent<{ kind: "webcodecs" | "wasm" }>;
  roundtrip: CustomEvent<{ ms: number }>;
}

/** One gateway and one loudspeaker. Contexts are heard one after the other, in the order in which they were opened. */
export class Player extends EventTarget {
  constructor(options?: PlayerOptions);
  /** Resolves at the first greeting, and never rejects: the connection is dialled until it stands. */
  readonly ready: Promise<Ready>;
  /** The latest greeting. */
  readonly info: Ready | null;
  readonly decoder: "webcodecs" | "wasm" | null;
  readonly roundTripMs: number | null;
  readonly contexts: Context[];
  readonly audioContext: AudioContext | null;
  /** The output, for analysers and for other ways than `audioContext.destination`; there once `start` has resolved. */
  readonly output: AudioNode | null;
  /** Call it in a click or a key press. `open` does too; later gestures anywhere on the page make up for a missed one. */
  start(): Promise<void>;
  /** Text may follow at once, whether or not the connection stands. TypeError: `close` was called, or the id is none or
   * taken: by one that runs, or that failed or was cancelled and the gateway has not ended yet. */
  open(options?: OpenOptions): Context;
  /** Barge-in: silence within a few milliseconds, and every context is cancelled. */
  interrupt(): Promise<Result[]>;
  close(): Promise<void>;
  addEventListener<K extends keyof PlayerEventMap>(
    type: K,
    listener: (event: PlayerEventMap[K]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(...untyped: Parameters<EventTarget["addEventListener"]>): void;
}

export interface Timing {
  /** From the first text that is not blank to the first decoded packet, and to the first sound that is heard. */
  firstPacketMs: number | null;
  firstSoundMs: number | null;
  /** The gateway's own share, known at the end. */
  serverMs: number | null;
}

export interface Position {
  playedMs: number;
  bufferMs: number;
  underruns: number;
}

export interface Result {
  /** "failed" after what had come was played, as far as that went. */
  reason: "done" | "cancelled" | "failed";
  /** `code` is one of docs/protocol.md, or "connection_lost", "bad_audio", "no_sound" (the browser gives no way to the
   * loudspeaker) or "broken" (the player's files cannot be had). Nothing is said again by itself; what is opened next
   * tries anew. */
  error: { code: string; message: string; retryAfterMs: number | null } | null;
  audioMs: number;
  playedMs: number;
  underruns: number;
  /** A length limit of the gateway cut the speech off. */
  isTruncated: boolean;
  /** Together the text, split at what was heard. */
  spokenText: string;
  remainingText: string;
  timing: Timing;
}

export interface ContextEventMap {
  opened: CustomEvent<{ voice: string; sample_rate: number }>;
  /** Audio was decoded; `peaks` has one amplitude for each 10 ms. */
  received: CustomEvent<{ startMs: number; durationMs: number; peaks: number[] }>;
  alignment: CustomEvent<{ items: AlignedText[] }>;
  flushed: CustomEvent<{ id: string; audioMs: number }>;
  /** Sound begins, or goes on after an underrun. */
  started: CustomEvent<Position>;
  /** Every 20 ms while it sounds or waits. */
  position: CustomEvent<Position>;
  /** There was nothing to play: the network or the gateway was late, or so was whoever writes the text. */
  underrun: CustomEvent<Position>;
  /** All of it was played. */
  ended: CustomEvent<Position>;
  /** Received audio is still played; then it has `finished`. */
  failed: CustomEvent<{ code: string; message: string; retryAfterMs: number | null }>;
  finished: CustomEvent<Result>;
}

/** One stretch of speech. Made by `Player.open`. */
export class Context extends EventTarget {
  private constructor();
  readonly id: string;
  /** All that was said into it. */
  readonly text: string;
  readonly voice: string | null;
  /** When each piece of the text sounds, as far as known. */
  readonly alignment: AlignedText[];
  /** Milliseconds that the listener has heard: without audio that the device still holds. */
  readonly playedMs: number;
  readonly bufferMs: number;
  readonly receivedMs: number;
  readonly underruns: number;
  readonly timing: Timing;
  /** Resolves when it is silent for good; never rejects. */
  readonly finished: Promise<Result>;
  /** Append text exactly as written; a piece of an answer may be none. False: it was cancelled or failed, and takes no
   * more. */
  say(text: string | null | undefined): boolean;
  /** Speak all that was said so far without waiting for more. */
  flush(id?: string): void;
  /** No more text. */
  end(): void;
  /** Barge-in: silence within a few milliseconds. Resolves when the gateway has said what was spoken. */
  cancel(): Promise<Result>;
  addEventListener<K extends keyof ContextEventMap>(
    type: K,
    listener: (event: ContextEventMap[K]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(...untyped: Parameters<EventTarget["addEventListener"]>): void;
}
