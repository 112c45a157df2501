// Where samples become sound: a Playout on the audio thread, or, where a page is not secure (http other than
// localhost has no AudioWorklet), on the page's own.

// Buffer of the page's own thread. Lower stutters when the page is busy; higher comes later, 43 ms at 48 kHz.
const SCRIPT_SAMPLES = 2048;

/** {node, createPort(), clear(context), close()}: a port takes samples, as messages that Playout.receive knows; `tell` as
 * there, with `atMs` on the AudioContext's clock. */
export async function createOutput(audioContext, { startMs, tell }) {
  const create = audioContext.audioWorklet ? createWorklet : createScript;
  const { node, listen, clear, stop } = await create(audioContext, { startMs, tell });
  node.connect(audioContext.destination);
  const createPort = () => {
    const { port1, port2 } = new MessageChannel();
    listen(port1);
    return port2;
  };
  const close = () => {
    stop();
    node.disconnect();
  };
  return { node, createPort, clear, close };
}

async function createWorklet(audioContext, { startMs, tell }) {
  await audioContext.audioWorklet.addModule(new URL("./worklet.js", import.meta.url));
  const node = new AudioWorkletNode(audioContext, "voicegate-player", {
    numberOfInputs: 0,
    outputChannelCount: [1],
    processorOptions: { startMs },
  });
  node.port.onmessage = ({ data }) => tell(data);
  const listen = (port) => node.port.postMessage({ type: "port", port }, [port]);
  const clear = (context) => node.port.postMessage({ type: "clear", context });
  // Else it would be asked for samples for as long as the AudioContext lives, which may be the page's.
  return { node, listen, clear, stop: () => node.port.postMessage({ type: "stop" }) };
}

async function createScript(audioContext, { startMs, tell }) {
  const { Playout } = await import("./worklet.js");
  const node = audioContext.createScriptProcessor(SCRIPT_SAMPLES, 0, 1);
  const playout = new Playout({
    rateHz: audioContext.sampleRate,
    startMs,
    tell: (event) => tell({ ...event, atMs: audioContext.currentTime * 1000 }),
  });
  node.onaudioprocess = ({ outputBuffer }) => playout.render(outputBuffer.getChannelData(0));
  return {
    node,
    listen: (port) => (port.onmessage = ({ data }) => playout.receive(data)),
    clear: (context) => playout.clear(context),
    stop: () => (node.onaudioprocess = null),
  };
}
