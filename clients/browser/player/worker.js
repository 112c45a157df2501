// The player's worker: socket and decoders live here, where a busy or hidden page does not slow them down. Samples go
// straight to the audio thread, all else to player.js.

import { Connection } from "./connection.js";
import { chooseDecoder } from "./decoder.js";
import { Stream } from "./stream.js";

/** The way to the audio thread, which may open after the first audio has come. */
class Sink {
  #attach;
  #attached = new Promise((resolve) => (this.#attach = resolve));

  attach(port, rateHz) {
    this.#attach({ port, rateHz });
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
  const opusKind = chooseDecoder(decoder);
  opusKind.then(
    ({ kindName }) => tell({ type: "decoder", kind: kindName }),
    () => {}, // told by every context that needs it
  );
  connection = new Connection(url, {
    tell,
    createStream: (context, onFailure) => new Stream(context, { sink, opusKind, tell, onFailure }),
  });
  self.addEventListener("online", () => connection.dialNow());
}

self.onmessage = ({ data }) => {
  switch (data.type) {
    case "connect":
      return connect(data);
    case "audio":
      return sink.attach(data.port, data.rateHz);
    case "open":
      return connection.open(data.context, data.options);
    case "send":
      return connection.send(data.context, data.verb, ...data.args);
    case "cancel":
      return connection.cancel(data.context, data.playedMs);
    case "close":
      // Not before: what a socket has not sent when its worker ends is lost, its close frame too.
      return connection.close().then(() => self.close());
  }
};
