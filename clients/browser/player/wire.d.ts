// Types of what wire.js and text.js make of the protocol's messages, for every client in JavaScript. Times are in
// milliseconds.

/** The gateway's greeting; docs/protocol.md, section 4. */
export interface Ready {
  session: string;
  model: string;
  voices: string[];
  default_voice: string;
  modes: string[];
  /** Section 6; among them contexts, text_bytes, lead_ms. */
  limits: Record<string, number>;
  protocol: number;
  family: string;
  sample_rate: number;
  languages: string[];
  voice_languages: Record<string, string>;
}

/** Fields that are left out are the gateway's choice. */
export interface OpenOptions {
  /** 1 to 64 printable characters; in the gateway's logs. */
  id?: string;
  voice?: string;
  format?: { codec?: "opus" | "pcm_s16le"; frameMs?: 20 | 40 | 60; bitrate?: number; sampleRate?: number };
  speed?: number;
  instruct?: string;
  seed?: number;
  /** One of `Ready.modes`. */
  mode?: string;
  /** From 200: how far ahead of real time audio may be made. */
  leadMs?: number;
  /** One of `Ready.languages`, with a region or without: in which numbers are read. */
  language?: string;
  /** false: numbers, signs and markup are left to the model. */
  normalize?: boolean;
  /** The longest time for which text waits for more of it. */
  maxBufferDelayMs?: number;
  /** Written words, and those said for them. */
  pronunciations?: Record<string, string>;
}

export interface AlignedText {
  text: string;
  startMs: number;
  endMs: number;
  /** In `Context.text`. */
  start: number;
  end: number;
}
