// Each trial of the client in clients/javascript, for test_client_javascript.py: a plan comes in one line, what happened
// goes out in one; "connected" and "go" are said before the network gets bad.

import { createConnection, createServer } from "node:net";
import { createInterface } from "node:readline";
import { connect, Context } from "voicegate";
import { encode, readMessage, unpackAudio } from "voicegate-player/wire.js";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const plan = JSON.parse((await lines.next()).value);
const socket = plan.socket === null ? {} : { WebSocket: (await import(plan.socket)).WebSocket };
const unhandled = [];
process.on("unhandledRejection", (reason) => unhandled.push(String(reason)));

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const dial = (name, options = {}) => connect(plan.urls[name], { ...socket, ...options });
const told = ({ name, code, message, retryAfterMs }) => ({ name, code, message, retryAfterMs });
const thrownBy = (promise) => promise.then((value) => ({ value }), told);

async function heard(packets) {
  const all = [];
  for await (const { data, pts48k } of packets) all.push([pts48k, hex(data)]);
  return all;
}

/** As `heard`, of what fails. */
async function heardAndThrown(packets) {
  let numHeard = 0;
  try {
    for await (const _ of packets) numHeard += 1;
  } catch (error) {
    return { ...told(error), numHeard };
  }
}

async function* written(pieces) {
  for (const piece of pieces) {
    await new Promise(setImmediate);
    yield piece;
  }
}

async function speakOn(gate, pieces) {
  const context = await gate.open();
  const [aligned, flushed] = [[], []];
  context.addEventListener("alignment", ({ detail }) => aligned.push(...detail.items));
  context.addEventListener("flushed", ({ detail }) => flushed.push(detail.id));
  const hearing = heard(context);
  for await (const piece of written(pieces)) context.say(piece);
  context.flush("all");
  context.end();
  const packets = await hearing;
  const words = aligned.map(({ start, end }) => context.text.slice(start, end));
  return { packets, words, flushed, endPts48k: context.endPts48k, finished: await context.finished };
}

const trials = {
  async whole() {
    const gate = await dial("whole");
    const packets = await heard(gate.speak(plan.said, { voice: gate.ready.default_voice }));
    await gate.close();
    return packets;
  },

  async streamed() {
    const gate = await dial("streamed");
    const result = await speakOn(gate, [...plan.said.match(/.{1,3}/g), null, "\ud83d", "\ude00."]);
    await gate.close();
    return result;
  },

  async cancel() {
    const gate = await dial("slow");
    const context = await gate.open();
    context.say(plan.long);
    context.end();
    let lastPts48k = 0;
    for await (const { pts48k } of context) if ((lastPts48k = pts48k) >= 48_000) break;
    const split = await context.cancel({ playedMs: 700 });
    const again = await context.cancel({ playedMs: 0 });
    const rest = await heard(context);
    const said = await thrownBy(Promise.resolve().then(() => context.say("more")));
    const left = [];
    for await (const packet of gate.speak(plan.long)) if (left.push(packet) === 3) break;
    const after = await heard(gate.speak(plan.said)); // the id and the gate are free
    await gate.close();
    return { split, again, rest, said, lastPts48k, left: left.length, after: after.length };
  },

  async afterTheEnd() {
    const gate = await dial("whole");
    const context = await gate.open();
    context.say(plan.said);
    context.end();
    const { audioMs } = await context.finished;
    const result = { audioMs, whole: await context.cancel(), part: await context.cancel({ playedMs: audioMs / 2 }) };
    await gate.close();
    return result;
  },

  async errors() {
    const gate = await dial("refusing");
    const result = {
      overloaded: await thrownBy(heard(gate.speak(plan.said))),
      failed: await heardAndThrown(gate.speak(plan.said)),
      unknownVoice: await thrownBy(gate.open({ voice: "nobody" })),
      option: await thrownBy(gate.open({ vioce: "anna" })),
      text: await thrownBy(heard(gate.speak(42))),
      source: await thrownBy(heard(gate.speak(failing()))),
      after: (await heard(gate.speak(plan.said))).length,
    };
    const context = await gate.open();
    await gate.close();
    result.lost = await context.finished.then(({ reason, error }) => [reason, error.code]);
    result.closed = await thrownBy(gate.open());
    return result;
  },

  async keys() {
    const gate = await dial("keyed", { token: plan.key });
    const packets = await heard(gate.speak(plan.said));
    await gate.close();
    return {
      heard: packets.length,
      none: await thrownBy(dial("keyed")),
      unfit: await thrownBy(dial("keyed", { token: "a key" })),
      nobody: await thrownBy(dial("nobody")),
      address: await thrownBy(connect("ftp://x", socket)),
      socketless: await thrownBy(connect(plan.urls.whole, { WebSocket: null })),
    };
  },

  async unread() {
    const cancelled = [];
    const context = new Context("a", { send() {}, cancel: (playedMs) => cancelled.push(playedMs) });
    context.reception.start({ format: { frame_ms: 20 } });
    const packets = [new Uint8Array(60_000)];
    let sequence = 0;
    while (!context.isOver) context.reception.receive({ sequence: sequence++, pts48k: 0, packets });
    return { ...(await heardAndThrown(context)), cancelled, numMessages: sequence };
  },

  async unwritable() {
    const gate = await dial("whole");
    const refused = await thrownBy(gate.open({ id: "x", seed: 5n }));
    const context = await gate.open({ id: "x", seed: 5 });
    await context.cancel();
    await gate.close();
    return { refused, id: context.id };
  },

  /** Behind a network that vanishes: nothing is passed on, and nobody is told. */
  async vanished() {
    const { hostname, port } = new URL(plan.urls.whole);
    let isGone = false;
    const pass = (from, to) => from.on("data", (data) => isGone || to.write(data)).on("error", () => {});
    const ends = [];
    const network = createServer((near) => {
      const far = createConnection(port, hostname);
      ends.push(near, far);
      pass(near, far);
      pass(far, near);
    });
    await new Promise((resolve) => network.listen(0, "127.0.0.1", resolve));
    const gate = await connect(`ws://127.0.0.1:${network.address().port}`, socket);
    isGone = true;
    const patience = new Promise((resolve) => setTimeout(resolve, 20_000, "still waiting"));
    const told = await Promise.race([gate.close().then(() => "closed"), patience]);
    for (const end of ends) end.destroy();
    network.close();
    return told;
  },

  async full() {
    const gate = await dial("full");
    const second = await thrownBy(dial("full"));
    await gate.close();
    return second;
  },

  async cut() {
    const gate = await dial("cut");
    console.log("connected");
    await lines.next();
    const results = [];
    for (const pieces of plan.texts) results.push(await speakOn(gate, pieces));
    const { numResumed } = gate;
    await gate.close();
    return { numResumed, results };
  },

  async uncut() {
    const gate = await dial("uncut");
    const results = [];
    for (const pieces of plan.texts) results.push(await speakOn(gate, pieces));
    await gate.close();
    return { numResumed: gate.numResumed, results };
  },

  vectors() {
    const bytes = ({ hex }) => Uint8Array.from(Buffer.from(hex, "hex")).buffer;
    const thrown = (call) => {
      try {
        return call();
      } catch (error) {
        return error.constructor.name;
      }
    };
    return {
      audio: plan.vectors.audio_messages.map((row) => {
        const { packets, ...rest } = unpackAudio(bytes(row));
        return { ...rest, packets: packets.map(hex) };
      }),
      badAudio: plan.vectors.bad_audio_messages.map((row) => thrown(() => unpackAudio(bytes(row)))),
      server: plan.vectors.server_messages.map(({ json }) => readMessage(json)),
      text: plan.vectors.client_messages
        .map(({ fields }) => fields)
        .filter(({ type }) => type === "text")
        .map(({ context, text }) => encode.text(context, text)),
    };
  },
};

async function* failing() {
  yield "Hello ";
  throw new RangeError("the LLM is gone");
}

const results = {};
for (const [name, trial] of Object.entries(trials)) results[name] = await trial();
await new Promise(setImmediate);
console.log(JSON.stringify({ ...results, unhandled }));
lines.return();
process.stdin.destroy();
