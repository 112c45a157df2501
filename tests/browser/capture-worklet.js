// Records what reaches the loudspeaker: every sample, with the frame of the audio clock that it began at.
registerProcessor(
  "capture",
  class extends AudioWorkletProcessor {
    process([[input]]) {
      if (input) this.port.postMessage({ frame: currentFrame, samples: input.slice() });
      return true;
    }
  },
);
