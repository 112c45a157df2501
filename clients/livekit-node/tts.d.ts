import type { APIConnectOptions, tts } from "@livekit/agents";

/** Where nothing is given: the server's. A change is heard from the next stream on. */
export interface VoiceOptions {
  voice?: string;
  language?: string;
  /** 0.5 to 2. */
  speed?: number;
  /** How to speak, in words. */
  instruct?: string;
}

export interface TTSOptions extends VoiceOptions {
  /** Of the server; "ws://127.0.0.1:8080" where it is not given. */
  url?: string;
  /** A key of the server; VOICEGATE_API_KEY of the environment where it is not given. */
  token?: string | null;
  /** That of the package `ws` in Node.js 20, which has none of its own. */
  WebSocket?: unknown;
}

/** Give it to an AgentSession in the place of any other TTS. */
export class TTS extends tts.TTS {
  constructor(options?: TTSOptions);
  label: string;
  updateOptions(options: VoiceOptions): void;
  synthesize(text: string, connOptions?: APIConnectOptions, abortSignal?: AbortSignal): tts.ChunkedStream;
  stream(options?: { connOptions?: APIConnectOptions }): tts.SynthesizeStream;
}
