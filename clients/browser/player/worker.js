// The player's worker: socket and decoders live here, where a busy or hidden page does not slow them down. Samples go
// straight to the audio thread, all else to player.js.

import { Connection } from "./connection.js";
import { chooseDecoder } from "./decoder.js";
import { Stream } from "./stream.js";

/** The way to the audio thread, which may open after the first audio has come, and be replaced by another. */
class Sink {
  #attach;
  #attached;

  constructor() {
    this.detach();
  }

  attach(port, rateHz) {
    this.#attach({ port, rateHz });
  }

  /** Messages from here on are for the next. */
  detach() {
    this.#attached = new Promise((resolve) => (this.#attach = resolve));
  }

  get rateHz() {
    return this.#attached.then(({ rateHz }) => rateHz);
  }

  post(message, transfer = []) {
    this.#attached.then(({ port }) => port.postMessage(message, transfer));
  }
}

const sink = new Sink();
let connection = null;

function tell(event) {
  self.postMessage(event);
}

function connect({ url, decoder }) {
  const opusKind = decoderOnce(decoder);
  opusKind().catch(() => {}); // told by every context that needs it
  connection = new Connection(url, {
    tell,
    createStream: (track, onFailure) => new Stream(track, { sink, opusKind, tell, onFailure }),
  });
  self.addEventListener("online", () => connection.dialNow());
}

/** A function that gives the kind of decoder; what failed, as a file may be out of reach for a moment, is tried again. */
function decoderOnce(wanted) {
  let kind = null;
  return () => {
    kind ??= chooseDecoder(wanted).then(
      (chosen) => {
        tell({ type: "decoder", kind: chosen.kindName });
        return chosen;
      },
      (error) => {
        kind = null;
        throw error;
      },
    );
    return kind;
  };
}

self.onmessage = ({ data }) => {
  switch (data.type) {
    case "connect":
      return connect(data);
    case "audio":
      return sink.attach(data.port, data.rateHz);
    case "silence":
      return sink.detach();
    case "open":
      return connection.open(data.context, data.track, data.options);
    case "send":
      return connection.send(data.context, data.verb, ...data.args);
    case "cancel":
      // Also where the gateway is done, and all waits here for a way to the audio thread.
      sink.post({ type: "clear", context: data.track });
      return connection.cancel(data.context, data.playedMs);
    case "close":
      // Not before: what a socket has not sent when its worker ends is lost, its close frame too.
      return connection.close().then(() => self.close());
  }
};
