// Opus packets -> samples at 48 kHz: the browser's own decoder (WebCodecs) where it works, a vendored one elsewhere.
//
// WebCodecs has Opus in Chrome 94, Safari 26, desktop Firefox 130, and only in secure contexts (https, localhost). Some
// that claim it drop packets, so what counts is a tone that comes out. All decoders here are used in the same way:
//
//   const decoder = await Kind.create(onSamples); // onSamples(Float32Array), in order
//   decoder.decode(packet); await decoder.finish(); decoder.close();

import { WireError } from "./wire.js";

export const OPUS_RATE_HZ = 48_000;
// 80 ms of 440 Hz, amplitude 0.5.
const PROBE_PACKETS = [
  "CIR6tQufjDH9J6A4E1XJkKHvRrDLOoXjwA==",
  "CK+iE8g5bW0YAK3SqzjaibTuMH6OZMs=",
  "CKl1IvsyoSBym4tIFCuDj0A=",
  "CKmCCvr+4sXy99hMA6H9Og==",
];
const PROBE_SAMPLES = 3840;
const PROBE_PEAK = 0.3;
// Lower takes a busy browser for a broken one; higher keeps the first words waiting where it is broken.
const PROBE_TIMEOUT_MS = 1000;

// Magic number and version, and nothing in it.
const SMALLEST_MODULE = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);

/** Which kind of decoder `wanted` ("auto", "webcodecs" or "wasm") means here. */
export async function chooseDecoder(wanted = "auto") {
  const kind = KINDS[wanted] ?? ((await decodesProbe(WebCodecsDecoder)) ? WebCodecsDecoder : WasmDecoder);
  await kind.prepare();
  return kind;
}

/** Whether the canned tone comes out, all of it, and soon. */
export async function decodesProbe(kind) {
  const heard = [];
  try {
    const decoder = await kind.create((samples) => heard.push(samples));
    for (const packet of PROBE_PACKETS) decoder.decode(Uint8Array.from(atob(packet), (c) => c.charCodeAt(0)));
    await Promise.race([decoder.finish(), new Promise((resolve) => setTimeout(resolve, PROBE_TIMEOUT_MS))]);
    decoder.close();
  } catch {
    return false;
  }
  const numSamples = heard.reduce((total, samples) => total + samples.length, 0);
  return numSamples === PROBE_SAMPLES && peakOf(heard.at(-1)) > PROBE_PEAK;
}

function peakOf(samples) {
  return samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0);
}

export class WebCodecsDecoder {
  static kindName = "webcodecs";
  unheard = []; // packets whose samples have not come
  hasFailed = false; // as browsers may make it, of a tab in the background; then `unheard` is another decoder's to decode
  #decoder;

  static async prepare() {}

  static async create(onSamples) {
    return new WebCodecsDecoder(onSamples);
  }

  constructor(onSamples) {
    this.#decoder = new AudioDecoder({
      output: (audio) => {
        this.unheard.shift();
        const samples = new Float32Array(audio.numberOfFrames);
        audio.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
        audio.close();
        onSamples(samples);
      },
      error: () => (this.hasFailed = true),
    });
    // No other rate (Safari refuses 44100), and no `description`: these are raw packets.
    this.#decoder.configure({ codec: "opus", sampleRate: OPUS_RATE_HZ, numberOfChannels: 1 });
  }

  decode(packet) {
    this.unheard.push(packet);
    if (this.#decoder.state !== "configured") return;
    // Timestamps need only be there.
    this.#decoder.decode(new EncodedAudioChunk({ type: "key", timestamp: 0, data: packet }));
  }

  async finish() {
    await this.#decoder.flush().catch(() => {}); // it failed
  }

  close() {
    if (this.#decoder.state !== "closed") this.#decoder.close();
  }
}

export class WasmDecoder {
  static kindName = "wasm";
  static #OpusDecoder;
  hasFailed = false;
  #decoder;
  #onSamples;

  /** Loads and compiles it once. Rejects where the page's policy forbids that, of which the decoder says nothing. */
  static async prepare() {
    await WebAssembly.compile(SMALLEST_MODULE);
    ({ OpusDecoder: this.#OpusDecoder } = await import("./vendor/opus-decoder/opus-decoder.min.js"));
    (await WasmDecoder.create()).close();
  }

  static async create(onSamples) {
    const options = { channels: 1, streamCount: 1, coupledStreamCount: 0, channelMappingTable: [0] };
    const decoder = new this.#OpusDecoder(options);
    await decoder.ready;
    return new WasmDecoder(decoder, onSamples);
  }

  constructor(decoder, onSamples) {
    this.#decoder = decoder;
    this.#onSamples = onSamples;
  }

  decode(packet) {
    const { channelData, errors } = this.#decoder.decodeFrame(packet);
    if (errors.length > 0) throw new WireError(`a packet that is no Opus: ${errors[0].message}`);
    this.#onSamples(channelData[0]);
  }

  async finish() {}

  close() {
    this.#decoder.free();
  }
}

/** 16-bit little endian; not compressed, for debugging and for comparing. */
export class PcmDecoder {
  hasFailed = false;
  #onSamples;

  static async create(onSamples) {
    return new PcmDecoder(onSamples);
  }

  constructor(onSamples) {
    this.#onSamples = onSamples;
  }

  decode(packet) {
    const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
    this.#onSamples(Float32Array.from({ length: view.byteLength >> 1 }, (_, n) => view.getInt16(2 * n, true) / 32768));
  }

  async finish() {}

  close() {}
}

const KINDS = { webcodecs: WebCodecsDecoder, wasm: WasmDecoder };
