// One sample rate -> another, continuously across chunks: polyphase windowed sinc, exact in position. Pure.

// Zero crossings of the sinc on each side. Lower blurs what lies near the band's edge; higher costs as much more time.
const NUM_CROSSINGS = 16;

/** Output sample n is the input at time n * fromHz / toHz; what still needs input to come is held back. */
export class Resampler {
  #numPhases; // L and M of the ratio L / M, in lowest terms
  #step;
  #half; // taps on each side
  #bank;
  #held; // input from `#heldFrom` on
  #heldFrom;
  #numOut = 0;

  constructor(fromHz, toHz) {
    const divisor = gcd(fromHz, toHz);
    this.#numPhases = toHz / divisor;
    this.#step = fromHz / divisor;
    const cutoff = Math.min(1, toHz / fromHz);
    this.#half = Math.ceil(NUM_CROSSINGS / cutoff);
    this.#bank = this.isIdentity ? [] : filterBank(this.#numPhases, this.#half, cutoff);
    this.#heldFrom = 1 - this.#half; // silence before the start
    this.#held = new Float32Array(this.#half - 1);
  }

  get isIdentity() {
    return this.#numPhases === this.#step;
  }

  push(samples) {
    if (this.isIdentity) return samples;
    const input = new Float32Array(this.#held.length + samples.length);
    input.set(this.#held);
    input.set(samples, this.#held.length);
    const available = this.#heldFrom + input.length;
    const output = new Float32Array(Math.max(0, this.#countUpTo(available - this.#half) - this.#numOut));
    for (let n = 0; n < output.length; n++) output[n] = this.#sampleAt(input, this.#numOut + n);
    this.#numOut += output.length;
    const keepFrom = this.#centre(this.#numOut) - this.#half + 1;
    this.#held = input.slice(keepFrom - this.#heldFrom);
    this.#heldFrom = keepFrom;
    return output;
  }

  /** The held-back rest, with silence after the end. */
  finish() {
    return this.isIdentity ? new Float32Array(0) : this.push(new Float32Array(this.#half));
  }

  #centre(n) {
    return Math.floor((n * this.#step) / this.#numPhases);
  }

  /** Number of outputs whose centre lies before input `index`. */
  #countUpTo(index) {
    return Math.ceil((index * this.#numPhases) / this.#step);
  }

  #sampleAt(input, n) {
    const taps = this.#bank[(n * this.#step) % this.#numPhases];
    const start = this.#centre(n) - this.#half + 1 - this.#heldFrom;
    let sum = 0;
    for (let k = 0; k < taps.length; k++) sum += taps[k] * input[start + k];
    return sum;
  }
}

function filterBank(numPhases, half, cutoff) {
  return Array.from({ length: numPhases }, (_, phase) => {
    const taps = Float64Array.from({ length: 2 * half }, (_, k) =>
      kernel(k - half + 1 - phase / numPhases, half, cutoff),
    );
    const sum = taps.reduce((total, tap) => total + tap, 0);
    return Float32Array.from(taps, (tap) => tap / sum); // no phase louder than another
  });
}

/** Sinc under a Blackman window of `half` samples on each side. */
function kernel(x, half, cutoff) {
  if (Math.abs(x) >= half) return 0;
  const angle = (Math.PI * x) / half;
  const window = 0.42 + 0.5 * Math.cos(angle) + 0.08 * Math.cos(2 * angle);
  const phase = Math.PI * x * cutoff;
  return window * (phase === 0 ? 1 : Math.sin(phase) / phase);
}

function gcd(a, b) {
  return b === 0 ? a : gcd(b, a % b);
}
