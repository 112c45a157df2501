// The buffer between the network and the loudspeaker: samples in as they come, samples out as they are due.
//
// Contexts are played one after the other, in the order in which they were opened. A context begins once `startMs` are
// there. At an underrun it fades out, and goes on once enough is there for the worst wait seen lately, so that one
// slow network makes one gap and not a stutter. Nothing is ever left out to catch up. Pure: its clock is the samples
// that are asked for. It imports nothing: bundlers copy the file of an AudioWorklet as it is.

const FADE_MS = 5; // lower clicks; higher is heard as a fade
// Share of the worst wait that is to be there before it goes on. Lower has an underrun again; higher makes the gap longer.
const REFILL_FACTOR = 1.25;
const REFILL_MAX_MS = 400;
// In which the lesson of a wait fades. Lower forgets that the network is bad; higher makes later gaps longer.
const LESSON_MS = 100_000;
// A longer silence is a pause of the speaker, and no lesson. Lower takes a bad network for one; higher lets an agent that
// goes on after a tool's answer wait for a refill.
const PAUSE_MS = 1000;
// A source that stops before enough is there is played all the same, after so many times the wait for enough.
const PATIENCE = 1.5;
const REPORT_MS = 20;

export class Playout {
  #tracks = []; // the first is played
  #rateHz;
  #tell;
  #startSamples;
  #refillSamples; // what is to be there after an underrun
  #untilReport;

  /** `tell` is given events, each with its `context`: `started`, `position`, `underrun`, `ended`; none once cleared. */
  constructor({ rateHz, tell, startMs }) {
    this.#rateHz = rateHz;
    this.#tell = tell;
    this.#startSamples = this.#refillSamples = this.#samplesIn(startMs);
    this.#untilReport = this.#samplesIn(REPORT_MS);
  }

  /** A worker's message to the audio thread: one of the four calls below. */
  receive(message) {
    switch (message.type) {
      case "open":
        return this.open(message.context);
      case "push":
        return this.push(message.context, message.samples);
      case "end":
        return this.end(message.context, message.numSamples);
      case "clear":
        return this.clear(message.context);
    }
  }

  /** A context whose samples will follow. */
  open(context) {
    this.#tracks.push(new Track(context, this.#samplesIn(FADE_MS)));
  }

  push(context, samples) {
    this.#find(context)?.push(samples);
  }

  /** No more samples follow. `numSamples`: the exact length, from the first; null where it was cut off. */
  end(context, numSamples) {
    this.#find(context)?.end(numSamples);
  }

  /** Barge-in: silence after a short fade, whatever was to come. */
  clear(context) {
    const track = this.#find(context);
    track?.clear();
    if (track?.hasEnded) this.#finish(track); // one that does not play need not wait for its turn
  }

  /** Fills `output`, all of it. */
  render(output) {
    let at = 0;
    while (at < output.length && this.#tracks.length > 0) {
      const track = this.#tracks[0];
      if (!track.hasEnded) at = this.#renderTrack(track, output, at);
      if (!track.hasEnded) break;
      this.#finish(track);
    }
    output.fill(0, at);
    this.#report(output.length);
  }

  /** Returns how far it came. Where that is not the end of `output`, the track has ended or waits. */
  #renderTrack(track, output, start) {
    if (!track.isPlaying) {
      const isAfterGap = track.hadUnderrun && track.emptySamples < this.#samplesIn(PAUSE_MS);
      if (isAfterGap && track.numBuffered > 0) this.#learn(track.emptySamples);
      const needed = isAfterGap ? this.#refillSamples : this.#startSamples;
      if (!track.isReady(needed)) {
        track.wait(output.length - start);
        return start;
      }
      track.play();
      this.#tell({ ...this.#positionOf(track), type: "started" });
    }
    const at = track.read(output, start);
    this.#refillSamples += ((this.#startSamples - this.#refillSamples) * (at - start)) / this.#samplesIn(LESSON_MS);
    if (!track.isPlaying && !track.hasEnded) this.#tell({ ...this.#positionOf(track), type: "underrun" });
    return at;
  }

  #finish(track) {
    this.#tracks = this.#tracks.filter((other) => other !== track);
    if (!track.isCleared) this.#tell({ ...this.#positionOf(track), type: "ended" });
  }

  /** `samples` is how long nothing has come: so much more would have been needed. */
  #learn(samples) {
    const wanted = Math.min(samples * REFILL_FACTOR, this.#samplesIn(REFILL_MAX_MS));
    this.#refillSamples = Math.max(this.#refillSamples, wanted);
  }

  #report(numSamples) {
    this.#untilReport -= numSamples;
    if (this.#untilReport > 0) return;
    this.#untilReport += this.#samplesIn(REPORT_MS);
    const [track] = this.#tracks;
    if (track?.hasBegun && !track.isCleared) this.#tell({ ...this.#positionOf(track), type: "position" });
  }

  #positionOf(track) {
    return {
      context: track.context,
      playedMs: (track.numPlayed * 1000) / this.#rateHz,
      bufferMs: (track.numBuffered * 1000) / this.#rateHz,
      underruns: track.numUnderruns,
    };
  }

  #find(context) {
    // One that was cleared may still fade when its name is used again.
    return this.#tracks.find((track) => track.context === context && !track.isCleared);
  }

  #samplesIn(ms) {
    return Math.round((ms * this.#rateHz) / 1000);
  }
}

/** The samples of one context, and where in them the listener is. */
class Track {
  isPlaying = false;
  isCleared = false;
  numPlayed = 0;
  numBuffered = 0;
  numUnderruns = 0;
  emptySamples = 0; // since it was empty and before anything came
  #waitedSamples = 0; // since something came
  #chunks = [];
  #head = 0; // played of the first chunk
  #isComplete = false;
  #isExact = false; // whether the last sample is the end of speech, and needs no fade
  #gain = 1;
  #fadeSamples;

  constructor(context, fadeSamples) {
    this.context = context;
    this.#fadeSamples = fadeSamples;
  }

  /** Whether anything has come. */
  get hasBegun() {
    return this.numPlayed + this.numBuffered > 0;
  }

  get hadUnderrun() {
    return this.numUnderruns > 0;
  }

  get hasEnded() {
    if (this.isCleared) return !this.isPlaying || this.#gain <= 0 || this.numBuffered === 0;
    return this.#isComplete && this.numBuffered === 0;
  }

  push(samples) {
    if (this.#isComplete || this.isCleared) return;
    this.#chunks.push(samples);
    this.numBuffered += samples.length;
  }

  end(numSamples) {
    this.#isComplete = true;
    this.#isExact = numSamples !== null;
    if (this.#isExact) this.numBuffered = Math.max(0, Math.min(this.numBuffered, numSamples - this.numPlayed));
  }

  clear() {
    this.isCleared = true;
  }

  isReady(neededSamples) {
    if (this.#isComplete || this.isCleared) return true;
    const isEnough = this.numBuffered >= neededSamples || this.#waitedSamples >= neededSamples * PATIENCE;
    return this.numBuffered > 0 && isEnough;
  }

  wait(numSamples) {
    if (this.numBuffered > 0) this.#waitedSamples += numSamples;
    else this.emptySamples += numSamples;
  }

  play() {
    this.isPlaying = true;
    this.#waitedSamples = this.emptySamples = 0;
  }

  /** Returns how far it came. */
  read(output, start) {
    let at = start;
    while (at < output.length && !this.hasEnded && this.numBuffered > 0) {
      this.#turn();
      output[at++] = this.#gain * this.#next();
    }
    if (this.numBuffered === 0 && !this.#isComplete && !this.isCleared) this.#runDry();
    return at;
  }

  #runDry() {
    this.isPlaying = false;
    this.numUnderruns += 1;
    this.#gain = 0; // it has faded by now; what comes next fades in
  }

  /** One sample's worth towards sound or silence. */
  #turn() {
    const needsNoFade = this.#isComplete && this.#isExact;
    const isFading = this.isCleared || (!needsNoFade && this.numBuffered <= this.#fadeSamples);
    const step = 1 / this.#fadeSamples;
    this.#gain = isFading ? Math.max(0, this.#gain - step) : Math.min(1, this.#gain + step);
  }

  #next() {
    const sample = this.#chunks[0][this.#head++];
    if (this.#head === this.#chunks[0].length) {
      this.#chunks.shift();
      this.#head = 0;
    }
    this.numPlayed += 1;
    this.numBuffered -= 1;
    return sample;
  }
}

// The audio thread's end of the player: a Playout with two ports. The worker sends samples, the page clears.
if (globalThis.registerProcessor) {
  class PlayerProcessor extends AudioWorkletProcessor {
    #playout;
    #isStopped = false;

    constructor({ processorOptions }) {
      super();
      this.#playout = new Playout({
        rateHz: sampleRate,
        startMs: processorOptions.startMs,
        tell: (event) => this.port.postMessage({ ...event, atMs: currentTime * 1000 }),
      });
      this.port.onmessage = ({ data }) => {
        if (data.type === "port") data.port.onmessage = (event) => this.#playout.receive(event.data);
        else if (data.type === "stop") this.#isStopped = true;
        else this.#playout.receive(data);
      };
    }

    process(_inputs, [[output]]) {
      this.#playout.render(output);
      return !this.#isStopped;
    }
  }

  registerProcessor("voicegate-player", PlayerProcessor);
}
