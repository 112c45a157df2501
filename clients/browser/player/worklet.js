// The audio thread's end of the player: a Playout behind two ports. The worker sends samples, the page clears.

import { Playout } from "./playout.js";

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
