// The protocol's bytes and JSON <-> plain objects; docs/protocol.md is normative. Pure: no socket, no audio.

const VERSION = 1;
const HEADER_BYTES = 12;
const FLAG_FIRST = 1;
const FLAG_LAST = 2;
const FLAG_DISCONTINUITY = 4;

export const SUBPROTOCOL = "voicegate.v1";
const STREAM_PATH = "/v1/stream";

/** A peer's message cannot be read. */
export class WireError extends Error {}

/** `base` with ws for http, and the protocol's path where it names none. */
export function streamUrl(base) {
  const url = new URL(base);
  url.protocol = { "http:": "ws:", "https:": "wss:" }[url.protocol] ?? url.protocol;
  if (!["ws:", "wss:"].includes(url.protocol)) {
    throw new TypeError(`${base} is no gateway's address; it looks like ws://127.0.0.1:8080`);
  }
  if (url.pathname.endsWith("/")) url.pathname = url.pathname.slice(0, -1) + STREAM_PATH; // the folder of a proxy, or none
  url.hash = "";
  return url.href;
}

/** A binary message. Packets are views into `buffer`. Throws WireError. */
export function unpackAudio(buffer) {
  if (buffer.byteLength < HEADER_BYTES) {
    throw new WireError(`audio message of ${buffer.byteLength} bytes is shorter than its header`);
  }
  const view = new DataView(buffer);
  const version = view.getUint8(0);
  if (version !== VERSION) throw new WireError(`audio message version ${version}, not ${VERSION}`);
  const flags = view.getUint8(1);
  return {
    handle: view.getUint16(2, true),
    sequence: view.getUint32(4, true),
    pts48k: view.getUint32(8, true),
    packets: splitPackets(view),
    isFirst: Boolean(flags & FLAG_FIRST),
    isLast: Boolean(flags & FLAG_LAST),
    isDiscontinuity: Boolean(flags & FLAG_DISCONTINUITY),
  };
}

function splitPackets(view) {
  const packets = [];
  let offset = HEADER_BYTES;
  while (offset < view.byteLength) {
    if (offset + 2 > view.byteLength) throw new WireError("audio message ends inside a packet length");
    const numBytes = view.getUint16(offset, true);
    offset += 2;
    if (offset + numBytes > view.byteLength) throw new WireError("audio message ends inside a packet");
    packets.push(new Uint8Array(view.buffer, view.byteOffset + offset, numBytes));
    offset += numBytes;
  }
  return packets;
}

// Fields that this client reads of each message, with their types; it trusts no message that lacks one.
const SERVER_FIELDS = {
  ready: { session: "string", token: "string", voices: "object", default_voice: "string", limits: "object" },
  opened: {
    context: "string",
    handle: "number",
    voice: "string",
    format: "object",
    sample_rate: "number",
    pre_skip: "number",
  },
  alignment: { context: "string", items: "object" },
  flushed: { context: "string", id: "string", audio_ms: "number" },
  done: { context: "string", audio_ms: "number", timing: "object" },
  cancelled: { context: "string", audio_ms: "number", spoken_text: "string", remaining_text: "string" },
  error: { code: "string", message: "string", fatal: "boolean" },
  draining: { deadline_ms: "number" },
  pong: {},
  ack: { received: "number" },
  resumed: { received: "number" },
};

/** A text message as an object; null for a type that this client does not know. Throws WireError. */
export function readMessage(json) {
  let message;
  try {
    message = JSON.parse(json);
  } catch {
    throw new WireError("a text message is not JSON");
  }
  const fields = Object.hasOwn(SERVER_FIELDS, message?.type) ? SERVER_FIELDS[message.type] : null;
  if (fields === null) return null;
  for (const [name, type] of Object.entries(fields)) {
    if (typeof message[name] !== type || message[name] === null) {
      throw new WireError(`the field \`${name}\` of \`${message.type}\` is missing or no ${type}`);
    }
  }
  return message;
}

/** JavaScript's strings need not be well-formed; what is sent must be, or no answer could name its context. */
export function wellFormed(text) {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

function write(message) {
  return JSON.stringify(message, (_key, value) => (typeof value === "string" ? wellFormed(value) : value));
}

/** The messages of a client, as JSON. Options that are undefined are left to the server. */
export const encode = {
  open: (context, options = {}) => {
    const { voice, format, speed, instruct, seed, mode, leadMs, language, normalize, pronunciations } = options;
    return write({
      type: "open",
      context,
      voice,
      format: format && {
        codec: format.codec,
        frame_ms: format.frameMs,
        bitrate: format.bitrate,
        sample_rate: format.sampleRate,
      },
      speed,
      instruct,
      seed,
      mode,
      pace: leadMs === undefined ? undefined : { lead_ms: leadMs },
      language,
      normalize,
      max_buffer_delay_ms: options.maxBufferDelayMs,
      pronunciations:
        pronunciations &&
        Object.fromEntries(Object.entries(pronunciations).map(([written, said]) => [wellFormed(written), said])),
    });
  },
  text: (context, text) => write({ type: "text", context, text }),
  flush: (context, id = "") => write({ type: "flush", context, id }),
  end: (context) => write({ type: "end", context }),
  cancel: (context, playedMs = null) => write({ type: "cancel", context, played_ms: playedMs }),
  playback: (context, playedMs, bufferMs, underruns) =>
    write({ type: "playback", context, played_ms: playedMs, buffer_ms: bufferMs, underruns }),
  ping: (t) => write({ type: "ping", t }),
  ack: (received) => write({ type: "ack", received }),
  resume: (session, token, received) => write({ type: "resume", session, token, received }),
};

/** `text` in parts of at most `maxBytes` of UTF-8, none of which splits a character. */
export function* textPieces(text, maxBytes) {
  // No UTF-16 unit needs more than three bytes. One less, so that a surrogate pair can be kept whole.
  const maxUnits = Math.max(1, Math.floor(maxBytes / 3) - 1);
  for (let start = 0; start < text.length;) {
    let stop = Math.min(start + maxUnits, text.length);
    if (stop < text.length && isHighSurrogate(text, stop - 1)) stop += 1;
    yield text.slice(start, stop);
    start = stop;
  }
}

/** Whether the UTF-16 unit at `index` is the first half of a character. */
export function isHighSurrogate(text, index) {
  const unit = text.charCodeAt(index);
  return unit >= 0xd800 && unit <= 0xdbff;
}

/** Turns the protocol's counts of code points into indices of a JavaScript string; call it with rising counts. */
export class CodePointCursor {
  #numPoints = 0;
  #index = 0;

  indexAt(text, numPoints) {
    if (numPoints < this.#numPoints) this.#numPoints = this.#index = 0;
    while (this.#numPoints < numPoints && this.#index < text.length) {
      this.#index += isHighSurrogate(text, this.#index) ? 2 : 1;
      this.#numPoints += 1;
    }
    return this.#index;
  }
}
