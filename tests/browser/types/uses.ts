// Promises of player.d.ts (`told/`), as a page would use them, against the JavaScript itself (`made/`).
import { Context, Player } from "./told/player.js";
import type { AlignedText, PlayerOptions, Position, Ready, Result, Timing } from "./told/player.js";
import * as made from "./made/player.js";

// --- the page of clients/browser/README.md

export async function speak(answer: AsyncIterable<string>, button: HTMLButtonElement, meter: HTMLProgressElement): Promise<void> {
  const options: PlayerOptions = { url: "wss://gate.example", decoder: "wasm", startMs: 80 };
  const player = new Player(options);
  button.onclick = async () => {
    const context: Context = player.open({ voice: "woman", format: { codec: "opus", frameMs: 20 } });
    context.addEventListener("position", ({ detail }) => (meter.value = detail.bufferMs));
    for await (const token of answer) if (!context.say(token)) break;
    context.end();
    const { reason, spokenText, remainingText }: Result = await context.finished;
    button.textContent = reason === "done" ? spokenText : remainingText;
  };
  player.addEventListener("connection", ({ detail: { state, retryMs } }) => (button.disabled = state !== "ready" && !retryMs));
  const ready: Ready = await player.ready;
  const voices: string[] = ready.voices;
  const results: Result[] = await player.interrupt();
  const timings: Timing[] = results.map(({ timing }) => timing);
  const items: AlignedText[] = player.contexts.flatMap(({ alignment }) => alignment);
  player.output?.connect(new AnalyserNode(player.audioContext as AudioContext));
  console.log(voices, timings, items);
  await player.close();
}

// --- what is wrong is told

declare const player: Player;
declare const context: Context;
// @ts-expect-error there is no such decoder
new Player({ decoder: "ffmpeg" });
// @ts-expect-error only a player makes one
new Context("a", {});
declare const delta: { content?: string | null };
context.say(delta.content);
// @ts-expect-error it is text
context.say(5);
// @ts-expect-error there is no such option
player.open({ speaker: "woman" });
// @ts-expect-error it is for reading
context.playedMs = 5;
// @ts-expect-error a position has no such field
context.addEventListener("position", ({ detail }) => detail.seconds);
export const position: (handler: (at: Position) => void) => void = (handler) =>
  context.addEventListener("started", ({ detail }) => handler(detail));

// --- the same names as the JavaScript has

type Same<A, B> = [A, B] extends [B, A] ? true : [Exclude<A, B>, Exclude<B, A>];
type Own = keyof EventTarget;
// By which its player tells it what comes.
type Inner = "hear" | "receive" | "play" | "break" | "reportStanding";
type MadeOptions = NonNullable<ConstructorParameters<typeof made.Player>[0]>;
type MadeExports = keyof typeof made;
export const exported: Same<"Player" | "Context", MadeExports> = true;
export const ofPlayer: Same<Exclude<keyof Player, Own>, Exclude<keyof made.Player, Own>> = true;
export const ofContext: Same<Exclude<keyof Context, Own>, Exclude<keyof made.Context, Own | Inner>> = true;
export const ofOptions: Same<keyof PlayerOptions, keyof MadeOptions> = true;
