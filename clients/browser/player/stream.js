// One context's audio inside the worker: packets -> samples at the loudspeaker's rate, trimmed to what was spoken.
// It must not know sockets.

import { chooseDecoder, OPUS_RATE_HZ, PcmDecoder } from "./decoder.js";
import { Resampler } from "./resampler.js";
import { WireError } from "./wire.js";

const PTS_RATE_HZ = 48_000;
const PEAK_MS = 10;

export class Stream {
  nextSequence = 0;
  #track;
  #sink;
  #opusKind;
  #tell;
  #onFailure;
  #work = Promise.resolve(); // decoding is asynchronous, its order is not
  #hasFailed = false;
  #isClosed = false;
  #decoder = null;
  #resampler = null;
  #peaks = null;
  #preSkip48k = 0;
  #rateHz = 0; // decoded
  #numToSkip = 0;
  #numSamples = 0; // decoded, without the pre-skip

  /** `track`: its name here. `sink` takes what Playout.receive does; `opusKind` gives a promise as chooseDecoder does;
   * `tell` hears of `received`. */
  constructor(track, { sink, opusKind, tell, onFailure }) {
    this.#track = track;
    this.#sink = sink;
    this.#opusKind = opusKind;
    this.#tell = tell;
    this.#onFailure = onFailure;
    sink.post({ type: "open", context: track });
  }

  /** The server's `opened` is here. */
  start(opened) {
    this.#then(() => this.#start(opened));
  }

  /** Throws WireError where messages are missing. */
  receive(audio) {
    if (audio.sequence !== this.nextSequence) {
      throw new WireError(`audio message ${audio.sequence} came where ${this.nextSequence} was due`);
    }
    this.nextSequence += 1;
    this.#then(() => this.#decode(audio));
  }

  /** No more comes, though more was due: what is here is played. */
  cutOff() {
    this.#work = this.#work.then(() => this.#end(null)).catch(() => this.#conclude(null));
  }

  /** Barge-in: nothing of this context is to be heard from here on. */
  close() {
    this.#sink.post({ type: "clear", context: this.#track });
    this.#free();
  }

  #then(step) {
    this.#work = this.#work
      .then(() => (this.#isClosed || this.#hasFailed ? undefined : step()))
      .catch((error) => {
        this.#hasFailed = true;
        if (!this.#isClosed) this.#onFailure(error);
      });
  }

  async #start(opened) {
    const isOpus = opened.format.codec === "opus";
    const kind = isOpus ? await this.#opusKind() : PcmDecoder;
    this.#rateHz = isOpus ? OPUS_RATE_HZ : opened.sample_rate;
    this.#preSkip48k = opened.pre_skip;
    this.#numToSkip = (opened.pre_skip * this.#rateHz) / PTS_RATE_HZ;
    this.#peaks = new Peaks((this.#rateHz * PEAK_MS) / 1000);
    this.#resampler = new Resampler(this.#rateHz, await this.#sink.rateHz);
    await this.#createDecoder(kind);
  }

  async #decode(audio) {
    if (this.#decoder.hasFailed) await this.#replaceDecoder();
    for (const packet of audio.packets) this.#decoder.decode(packet);
    if (audio.isLast) await this.#end(audio.pts48k - this.#preSkip48k);
  }

  async #createDecoder(kind) {
    const decoder = await kind.create((samples) => this.#hear(samples));
    if (this.#isClosed)
      decoder.close(); // meanwhile
    else this.#decoder = decoder;
  }

  /** The other decoder does what the browser's has left undone. */
  async #replaceDecoder() {
    const { unheard } = this.#decoder;
    await this.#createDecoder(await chooseDecoder("wasm"));
    for (const packet of unheard) this.#decoder?.decode(packet);
  }

  /** `length48k` is exact, or null where it was cut off. */
  async #end(length48k) {
    await this.#decoder?.finish();
    if (this.#decoder?.hasFailed) await this.#replaceDecoder();
    if (this.#isClosed) return;
    if (this.#resampler !== null) this.#push(this.#resampler.finish());
    const toSamples = (await this.#sink.rateHz) / PTS_RATE_HZ;
    const numSamples = length48k === null ? null : Math.max(0, Math.round(length48k * toSamples));
    this.#conclude(numSamples);
  }

  #conclude(numSamples) {
    this.#sink.post({ type: "end", context: this.#track, numSamples });
    this.#free();
  }

  #hear(decoded) {
    if (this.#isClosed) return;
    const samples = decoded.subarray(Math.min(this.#numToSkip, decoded.length));
    this.#numToSkip -= decoded.length - samples.length;
    if (samples.length === 0) return;
    const startMs = (this.#numSamples * 1000) / this.#rateHz;
    this.#numSamples += samples.length;
    const durationMs = (samples.length * 1000) / this.#rateHz;
    const atMs = performance.timeOrigin + performance.now();
    const peaks = this.#peaks.push(samples);
    this.#tell({ type: "received", track: this.#track, atMs, startMs, durationMs, peaks });
    this.#push(this.#resampler.push(samples));
  }

  #push(samples) {
    if (samples.length === 0) return;
    const whole = samples.byteLength === samples.buffer.byteLength ? samples : samples.slice();
    this.#sink.post({ type: "push", context: this.#track, samples: whole }, [whole.buffer]);
  }

  #free() {
    this.#isClosed = true;
    this.#decoder?.close();
    this.#decoder = null;
  }
}

/** The loudest sample of each `period`, for those who draw. */
class Peaks {
  #period;
  #peak = 0;
  #count = 0;

  constructor(period) {
    this.#period = period;
  }

  push(samples) {
    const peaks = [];
    for (const sample of samples) {
      this.#peak = Math.max(this.#peak, Math.abs(sample));
      if (++this.#count < this.#period) continue;
      peaks.push(this.#peak);
      this.#peak = this.#count = 0;
    }
    return peaks;
  }
}
