// Promises of client.d.ts, as a program would use them. `made` is the JavaScript without its types.
import { connect, Context, Gate, GateError } from "voicegate";
import type { AlignedText, Cancelled, Done, Failed, Packet, Ready, Split } from "voicegate";
import * as made from "./made/client.js";

export async function speak(answer: AsyncIterable<string | null>, WebSocket: new (url: string) => object): Promise<void> {
  const gate: Gate = await connect("wss://gate.example", { token: "key", WebSocket });
  const ready: Ready = gate.ready;
  gate.addEventListener("connection", ({ detail: { state, retryMs } }) => console.log(state, retryMs));
  const packets: Packet[] = [];
  for await (const packet of gate.speak(answer, { voice: ready.voices[0], leadMs: 500 })) packets.push(packet);
  const context: Context = await gate.open({ format: { codec: "opus", frameMs: 20 } });
  const items: AlignedText[] = context.alignment;
  context.addEventListener("alignment", ({ detail }) => items.push(...detail.items));
  context.say("Hello ");
  context.flush("a");
  context.end();
  for await (const { data, pts48k } of context) console.log(data.length, pts48k);
  const { spokenText, remainingText }: Split = await context.cancel({ playedMs: 640 });
  const ending: Done | Cancelled | Failed = await context.finished;
  if (ending.reason === "failed") console.log(ending.error.code, ending.error.retryAfterMs);
  else console.log(ending.audioMs, spokenText, remainingText);
  await gate.close();
}

// --- what is wrong is told

declare const gate: Gate;
declare const context: Context;
// @ts-expect-error only a gate makes one
new Context("a", {});
// @ts-expect-error it is text
context.say(5);
// @ts-expect-error there is no such option
gate.open({ speaker: "woman" });
// @ts-expect-error an answer is iterated as it comes
gate.speak(["Hello"]);

// --- the same names as the JavaScript has

type Same<A, B> = [A, B] extends [B, A] ? true : [Exclude<A, B>, Exclude<B, A>];
type Own = keyof EventTarget;
// By which its gate tells it what comes.
type Inner = "reception" | "isOver" | "waitOpened" | "hear" | "fail" | "abandon";
export const exported: Same<"connect" | "Gate" | "Context" | "GateError", keyof typeof made> = true;
export const ofGate: Same<Exclude<keyof Gate, Own>, Exclude<keyof made.Gate, Own | "connected">> = true;
export const ofContext: Same<Exclude<keyof Context, Own>, Exclude<keyof made.Context, Own | Inner>> = true;
export const ofErrors: Same<keyof GateError, keyof made.GateError> = true;
