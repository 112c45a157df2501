// Sent messages that may not have arrived, and how much has come; docs/protocol.md, section 9. Pure.

const ACK_MESSAGES = 32;
const ACK_BYTES = 16 * 1024;

export class Delivery {
  numReceived = 0;
  #numAcknowledged = 0; // of these
  #numNewBytes = 0;
  #kept = []; // frames that the other side has not acknowledged, in order
  #numGone = 0; // those before them

  keep(frame) {
    this.#kept.push(frame);
  }

  /** The other side has so many. */
  acknowledge(numReceived) {
    const numNew = Math.min(Math.max(0, numReceived - this.#numGone), this.#kept.length);
    this.#kept.splice(0, numNew);
    this.#numGone += numNew;
  }

  /** The other side has so many: what it is to be sent again on another socket; null where it cannot be so. */
  rewind(numReceived) {
    if (numReceived < this.#numGone || numReceived > this.#numGone + this.#kept.length) return null;
    this.acknowledge(numReceived);
    this.noteAcknowledged();
    return [...this.#kept];
  }

  /** A message that counts has come; true: it is time to acknowledge. */
  noteReceived(numBytes) {
    this.numReceived += 1;
    this.#numNewBytes += numBytes;
    return this.numReceived - this.#numAcknowledged >= ACK_MESSAGES || this.#numNewBytes >= ACK_BYTES;
  }

  noteAcknowledged() {
    this.#numAcknowledged = this.numReceived;
    this.#numNewBytes = 0;
  }
}
