// The tests' part inside the page: a player whose output is recorded.

import { Player } from "/player/player.js";

/** Sound comes before a click, because the page was clicked. */
export async function createRig({ sampleRate, awaitsReady = true, ...options }) {
  const audioContext = new AudioContext(sampleRate ? { sampleRate } : {});
  const player = new Player({ ...options, audioContext });
  await player.start();
  // By way of a blob, because tests cannot answer what a worklet asks for.
  const source = await (await fetch("/test/capture-worklet.js")).blob();
  await audioContext.audioWorklet.addModule(URL.createObjectURL(source));
  const capture = new AudioWorkletNode(audioContext, "capture", { numberOfOutputs: 0 });
  const blocks = [];
  capture.port.onmessage = ({ data }) => blocks.push(data);
  player.output.connect(capture);
  if (awaitsReady) await player.ready;
  return { player, audioContext, blocks };
}

/** All that sounded, from the first sample that was not silence; base64 of float32. */
export function recordingOf({ blocks }) {
  const samples = blocks.flatMap(({ samples }) => Array.from(samples));
  const start = samples.findIndex((sample) => sample !== 0);
  return encodeFloats(Float32Array.from(start < 0 ? [] : samples.slice(start)));
}

export function encodeFloats(floats) {
  const bytes = new Uint8Array(floats.buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += 4096) text += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return btoa(text);
}

/** Everything that happens to a context, in order. */
export function logOf(context) {
  const log = [];
  for (const type of ["opened", "started", "underrun", "flushed", "failed", "ended", "finished"]) {
    context.addEventListener(type, ({ detail }) => log.push({ type, ...detail }));
  }
  return log;
}

/** Resolves with the first event that `accepts` (any by default). */
export function once(target, type, accepts = () => true) {
  return new Promise((resolve) => {
    target.addEventListener(type, function listen(event) {
      if (!accepts(event.detail)) return;
      target.removeEventListener(type, listen);
      resolve(event.detail);
    });
  });
}

/** The audio clock, in samples. */
export function frameNow({ audioContext }) {
  return Math.round(audioContext.currentTime * audioContext.sampleRate);
}

/** Time of the first sample that was not silence. */
export function frameOf({ blocks }) {
  const block = blocks.find(({ samples }) => samples.some((sample) => sample !== 0));
  return block.frame + block.samples.findIndex((sample) => sample !== 0);
}

/** Until what has been rendered so far, and for `ms` from now, has also been recorded. */
export async function settle(rig, ms = 0) {
  const frame = frameNow(rig) + (ms * rig.audioContext.sampleRate) / 1000;
  while (rig.blocks.length === 0 || rig.blocks.at(-1).frame < frame)
    await new Promise((resolve) => setTimeout(resolve, 5));
}
