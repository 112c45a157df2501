// A recording for a new voice: of the microphone, or of a file that the gateway may not read, made a WAV that it does.

const READ_BY_THE_GATEWAY = new Set(["wav", "flac", "ogg", "mp3"]);

/** The microphone from `start` to `stop`. */
export class Recorder {
  #media = null;
  #parts;
  #hasStopped;

  get isRunning() {
    return this.#media !== null;
  }

  /** Throws where there is no microphone, or the user keeps it. */
  async start() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Error("a browser records only on pages of https, or of this machine");
    }
    // As it is: what is added or left out for a call would become part of the voice.
    const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    try {
      const media = new MediaRecorder(stream);
      const parts = (this.#parts = []);
      // From the start: one whose microphone is pulled out stops by itself.
      media.addEventListener("dataavailable", ({ data }) => parts.push(data));
      this.#hasStopped = new Promise((resolve) => media.addEventListener("stop", resolve));
      media.start();
      this.#media = media;
    } catch (error) {
      letGo(stream);
      throw error;
    }
  }

  /** Resolves to a WAV of it. */
  async stop() {
    const media = this.#media;
    this.#media = null;
    if (media.state !== "inactive") media.stop();
    await this.#hasStopped;
    letGo(media.stream);
    return asWav(new Blob(this.#parts));
  }
}

/** The browser shows that it records until then. */
function letGo(stream) {
  for (const track of stream.getTracks()) track.stop();
}

/** `file` itself where the gateway reads its kind. Throws where the browser cannot read it either. */
export async function readable(file) {
  const ending = file.name?.split(".").pop().toLowerCase();
  return READ_BY_THE_GATEWAY.has(ending) ? file : asWav(file);
}

async function asWav(blob) {
  const context = new OfflineAudioContext(1, 1, 48_000);
  const audio = await context.decodeAudioData(await blob.arrayBuffer());
  return wavOf(averaged(audio), audio.sampleRate);
}

/** One channel of all, as the gateway makes it of files that it reads. */
function averaged(audio) {
  const samples = new Float32Array(audio.length);
  for (let n = 0; n < audio.numberOfChannels; n++) {
    audio.getChannelData(n).forEach((sample, at) => (samples[at] += sample / audio.numberOfChannels));
  }
  return samples;
}

/** 16 bits, one channel. */
export function wavOf(samples, sampleRate) {
  const view = new DataView(new ArrayBuffer(44 + samples.length * 2));
  const tag = (offset, letters) => [...letters].forEach((letter, n) => view.setUint8(offset + n, letter.charCodeAt(0)));
  tag(0, "RIFF");
  view.setUint32(4, view.byteLength - 8, true);
  tag(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, sampleRate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  tag(36, "data");
  view.setUint32(40, samples.length * 2, true);
  for (let n = 0; n < samples.length; n++) {
    view.setInt16(44 + n * 2, Math.max(-1, Math.min(1, samples[n])) * 32_767, true);
  }
  return new Blob([view], { type: "audio/wav" });
}
