// Types of client.js: the whole of what a program may use. Times are in milliseconds.

import type { AlignedText, OpenOptions, Ready } from "voicegate-player/wire.js";

export type { AlignedText, OpenOptions, Ready };

export interface ConnectOptions {
  /** An API key, or a token made with one. Default: the environment's VOICEGATE_API_KEY. */
  token?: string | null;
  /** Default: `globalThis.WebSocket`, which Node.js has from 22 on. For Node.js 20: that of the package `ws`. */
  WebSocket?: new (url: string, protocols: string[]) => object;
}

/** Rejects with a GateError after one attempt. `url`: ws, wss, http or https; with a slash at its end where a proxy has
 * the gateway in a folder. */
export function connect(url: string, options?: ConnectOptions): Promise<Gate>;

/** `code` is one of docs/protocol.md, section 7, or
 * "connect_failed" (no gateway answered), "connection_lost" (it did not come back in time, or the gate was closed),
 * "bad_audio", "reader_too_slow" (8 MiB of audio were not read), "closed" (the gate or the context has ended). */
export class GateError extends Error {
  private constructor();
  readonly code: string;
  readonly retryAfterMs: number | null;
}

/** One raw Opus packet, or PCM where `format` asks for it. */
export interface Packet {
  data: Uint8Array;
  /** Samples at 48 kHz since the start, the pre-skip counted in; modulo 2^32. */
  pts48k: number;
}

/** Whole, or as it is written. */
export type Text = string | AsyncIterable<string | null | undefined>;

/** One gateway, over as many sockets as it takes. One that drops is replaced, and nothing is lost or said twice. */
export class Gate extends EventTarget {
  private constructor();
  /** The latest greeting. */
  readonly ready: Ready;
  /** Times that a connection dropped, and nothing was lost. */
  readonly numResumed: number;
  /** Resolves once the gateway takes text for it. Rejects with a GateError. */
  open(options?: OpenOptions): Promise<Context>;
  /** The packets of one text. Leaving the loop early cancels it. */
  speak(text: Text, options?: OpenOptions): AsyncGenerator<Packet, void, undefined>;
  /** Ends every context that still runs. */
  close(): Promise<void>;
  /** "connection": {state, reason, retryMs}. "lost" is dialled again after `retryMs`. */
  addEventListener(
    type: "connection",
    listener: (event: {
      readonly detail: { state: "connecting" | "ready" | "lost"; reason?: string; retryMs?: number };
    }) => void,
  ): void;
  addEventListener(...untyped: Parameters<EventTarget["addEventListener"]>): void;
}

export interface Done {
  reason: "done";
  audioMs: number;
  /** A length limit of the gateway cut the speech off. */
  isTruncated: boolean;
}

export interface Split {
  audioMs: number;
  /** Together the text, split at what was heard. */
  spokenText: string;
  remainingText: string;
}

export interface Cancelled extends Split {
  reason: "cancelled";
}

export interface Failed {
  reason: "failed";
  error: GateError;
}

export interface ContextEventMap {
  alignment: { readonly detail: { items: AlignedText[] } };
  flushed: { readonly detail: { id: string; audioMs: number } };
  finished: { readonly detail: Done | Cancelled | Failed };
}

/** One stretch of speech. Made by `Gate.open`. Iterate it for its packets, once; the loop throws how it failed. */
export class Context extends EventTarget implements AsyncIterable<Packet> {
  private constructor();
  readonly id: string;
  /** All that was said into it. */
  readonly text: string;
  readonly opened: {
    voice: string;
    codec: "opus" | "pcm_s16le";
    frameMs: number;
    sampleRate: number;
    preSkip48k: number;
  };
  /** When each piece of the text sounds, as far as known. */
  readonly alignment: AlignedText[];
  /** Exact end of the audio, the pre-skip counted in; null before the last audio, and when cut short. */
  readonly endPts48k: number | null;
  /** Never rejects. */
  readonly finished: Promise<Done | Cancelled | Failed>;
  /** Append text exactly as written; a piece of an answer may be none. Throws how the context ended, if it has. */
  say(text: string | null | undefined): void;
  /** Speak all that was said so far without waiting for more; answered by the event `flushed`. */
  flush(id?: string): void;
  /** No more text. */
  end(): void;
  /** Barge-in: unread audio is dropped. Also right after the end, as long as a player plays. */
  cancel(options?: { playedMs?: number | null }): Promise<Split>;
  /** Where the player is; welcome at any time, never necessary. */
  reportPlayback(playedMs: number, options?: { bufferMs?: number; underruns?: number }): void;
  [Symbol.asyncIterator](): AsyncGenerator<Packet, void, undefined>;
  addEventListener<K extends keyof ContextEventMap>(type: K, listener: (event: ContextEventMap[K]) => void): void;
  addEventListener(...untyped: Parameters<EventTarget["addEventListener"]>): void;
}
