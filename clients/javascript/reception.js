// One context's audio that has come and was not read yet. It is the `stream` of a Connection.

import { WireError } from "voicegate-player/wire.js";

const PTS_PER_MS = 48;
// Lower fails readers that pause; higher lets one that never reads take more memory.
const MAX_UNREAD_BYTES = 8 * 1024 * 1024;

export class Reception {
  nextSequence = 0;
  opened = null;
  endPts48k = null;
  #unread = [];
  #unreadBytes = 0;
  #isClosed = false;
  #on;

  /** `on`: {news(), overflow(numBytes)}. */
  constructor(on) {
    this.#on = on;
  }

  /** The oldest packet, or undefined. */
  read() {
    const packet = this.#unread.shift();
    this.#unreadBytes -= packet?.data.length ?? 0;
    return packet;
  }

  // --- called by the connection -------------------------------------------------------------------------------

  start(opened) {
    this.opened = opened;
  }

  /** Throws WireError where messages are missing. */
  receive(audio) {
    if (audio.sequence !== this.nextSequence) {
      throw new WireError(`audio message ${audio.sequence} came where ${this.nextSequence} was due`);
    }
    this.nextSequence += 1;
    if (this.#isClosed) return;
    let { pts48k } = audio;
    for (const data of audio.packets) {
      this.#unread.push({ data, pts48k });
      this.#unreadBytes += data.length;
      pts48k = (pts48k + this.opened.format.frame_ms * PTS_PER_MS) % 2 ** 32;
    }
    if (audio.isLast) this.endPts48k = audio.pts48k;
    if (this.#unreadBytes > MAX_UNREAD_BYTES) this.#on.overflow(this.#unreadBytes);
    this.#on.news();
  }

  /** No more comes: what is here is read. */
  cutOff() {}

  /** Nothing of it is to be read from here on. */
  close() {
    this.#isClosed = true;
    this.#unread = [];
    this.#unreadBytes = 0;
  }
}
