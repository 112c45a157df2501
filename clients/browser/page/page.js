// The page at "/": what is typed is spoken, and what happens meanwhile is shown.

import { Player } from "../player/player.js";
import { BufferHistory, Waveform } from "./drawing.js";
import { Gallery, languageName, NewVoice } from "./gallery.js";
import { fillChoices, GatewayStatus } from "./gateway.js";
import { paced } from "./pace.js";
import { commands, save, speechRequest } from "./take_away.js";
import { Transcript } from "./transcript.js";

const SAMPLES = {
  answer: "Yes, there is a table free at half past seven. Shall I book it under your name?",
  story:
    "The lighthouse keeper wrote one letter every evening. He never posted them. When the winter storms came, he " +
    "read the letters aloud, so that the house would not forget the sound of a voice. In spring a child found the " +
    "box under the stairs, and asked who had answered.",
  numbers: "Your order number is 4 7 1 1. It comes to $23.50, and it will arrive on May 3rd, between 9 and 11 a.m.",
};

const HELD_BACK = "Your browser holds the sound back. Press a key or touch the page.";

const at = (id) => document.getElementById(id);
const gateway = new GatewayStatus(at("connection").parentElement);
const transcript = new Transcript(at("transcript"));
const waveform = new Waveform(at("timeline"));
const bufferHistory = new BufferHistory(at("buffer-history"));
const gallery = new Gallery(at("voices"), at("spoken-language"), (options) => speak(options.text, options));
const LANGUAGE_OF_THE_VOICE = "";
let player = null;
let shown = null; // {context, startMs, settings}: the last one that was opened
let position = null; // of it, to be shown with the next frame

// --- the gateway -----------------------------------------------------------------------------------------------------

function createPlayer() {
  player?.close();
  // The stream's address asks as the page's does, for a token above all.
  const created = new Player({ url: `./${location.search}`, decoder: at("decoder").value });
  const on = (type, listen) =>
    created.addEventListener(type, ({ detail }) => {
      if (created === player) listen(detail); // else it is one that was closed
    });
  player = created;
  on("connection", async (detail) => {
    gateway.show(detail, player.info);
    if (detail.state === "ready") await showChoices();
  });
  on("roundtrip", ({ ms }) => gateway.showRoundTrip(formatMs(ms)));
  let before = ""; // what the status said
  on("audio", ({ state, reason }) => {
    const isBlocked = at("status").className === "blocked";
    if (state === "broken") show(`This page cannot make sound: ${reason}`, "failed");
    else if (state === "running" && isBlocked) show(before);
    else if (state === "suspended") {
      if (!isBlocked) before = at("status").textContent;
      const isHeldBack = reason === undefined;
      show(isHeldBack ? HELD_BACK : `Nothing can be heard: ${reason}.`, "blocked");
    }
  });
}

async function showChoices() {
  const { modes, languages } = player.info;
  fillChoices(
    at("mode"),
    modes.map((mode) => [mode, mode]),
    "auto",
  );
  const named = languages.map((tag) => [tag, languageName(tag)]);
  fillChoices(at("language"), [[LANGUAGE_OF_THE_VOICE, "the voice's"], ...named], LANGUAGE_OF_THE_VOICE);
  await showVoices();
}

async function showVoices() {
  const answer = await fetch(`v1/voices${location.search}`).catch(() => null);
  if (!answer?.ok) {
    const reason = answer === null ? "no answer" : `HTTP ${answer.status}`;
    return show(`The gateway does not tell its voices (${reason}); reload to ask again.`);
  }
  const { voices, default: preferred, takes_voices: takesVoices } = await answer.json();
  at("new-voice").hidden = !takesVoices;
  at("no-new-voices").hidden = takesVoices;
  const labelled = voices.map(({ name, description }) => [name, description ? `${name}: ${description}` : name]);
  fillChoices(at("voice"), labelled, preferred);
  gallery.show(voices);
}

// --- speaking --------------------------------------------------------------------------------------------------------

/** Options of speech from the page's controls; a seed of its own, by which it can be made again. */
function chosen() {
  return {
    voice: at("voice").value || undefined,
    language: at("language").value || undefined,
    speed: Number(at("speed").value),
    seed: crypto.getRandomValues(new Uint32Array(1))[0],
  };
}

async function speak(text, options = {}) {
  if (text.trim() === "") {
    show("Write something first.");
    return at("text").focus();
  }
  player.interrupt();
  const settings = { ...chosen(), ...options, text };
  const { voice, language, speed, seed } = settings;
  const context = player.open({ voice, language, speed, seed, mode: at("mode").value || undefined });
  begin(context, settings);
  if (matchMedia("(max-width: 52rem)").matches) scrollTo(0, 0); // to what is heard
  const isWhole = document.querySelector("[name=delivery]:checked").value === "whole";
  for await (const piece of paced(text, isWhole ? Infinity : Number(at("rate").value))) {
    if (!context.say(piece)) return;
    if (shown.context === context) transcript.show(context.text, context.alignment, context.playedMs);
  }
  context.end();
}

function begin(context, settings) {
  shown = { context, startMs: performance.now(), settings };
  position = null;
  waveform.clear();
  bufferHistory.clear();
  at("events").replaceChildren();
  for (const figure of document.querySelectorAll(".figures dd > span")) figure.textContent = "–";
  for (const note of document.querySelectorAll(".figures small")) note.textContent = "";
  if (document.activeElement === at("continue")) at("interrupt").focus(); // a hidden button takes the focus with it
  at("continue").hidden = true;
  at("interrupt").setAttribute("aria-disabled", "false");
  show("Waiting for the first sound.");
  log("text is on its way");
  const on = (type, listen) =>
    context.addEventListener(type, ({ detail }) => {
      if (shown.context === context) listen(detail); // else another one has begun
    });
  on("opened", ({ voice }) => {
    settings.voice = voice; // the default one has a name, too
    showCommands(settings);
    log(`opened, voice ${voice}`);
  });
  on("received", received);
  on("started", started);
  on("position", showSoon);
  on("underrun", underrun);
  on("failed", ({ message }) => log(message));
  on("finished", finished);
}

function received({ peaks, startMs }) {
  waveform.receive(peaks);
  if (startMs === 0) log(`first packet after ${formatMs(shown.context.timing.firstPacketMs)}`);
}

function started({ underruns }) {
  const { firstPacketMs, firstSoundMs } = shown.context.timing;
  if (underruns === 0) {
    at("first-sound").textContent = formatMs(firstSoundMs);
    at("first-sound-note").textContent = `first packet ${formatMs(firstPacketMs)}`;
    log(`first sound after ${formatMs(firstSoundMs)}`);
  } else {
    log("sound goes on");
  }
  show("Speaking.");
}

/** Once a frame, and not at all where nobody looks: positions come fifty times a second. */
function showSoon(latest) {
  if (position === null) requestAnimationFrame(() => position !== null && showPosition(position));
  position = latest;
}

function showPosition({ playedMs, bufferMs, underruns }) {
  const { context } = shown;
  position = null;
  waveform.moveTo(playedMs);
  bufferHistory.add(bufferMs);
  transcript.show(context.text, context.alignment, playedMs);
  at("buffer").textContent = formatMs(bufferMs);
  at("underruns").textContent = underruns;
  at("heard").textContent = formatS(playedMs);
  at("heard-note").textContent = `of ${formatS(context.receivedMs)} received`;
}

function underrun(there) {
  waveform.markUnderrun(there.playedMs);
  showPosition(there);
  at("underruns-note").textContent = `last at ${formatS(there.playedMs)}`;
  show("Waiting for more sound.");
  log(`underrun at ${formatS(there.playedMs)}`);
}

function finished(result) {
  const { context } = shown;
  showPosition({ playedMs: result.playedMs, bufferMs: 0, underruns: result.underruns });
  transcript.end(context.text, result.spokenText);
  at("interrupt").setAttribute("aria-disabled", "true"); // and not `disabled`, which would take the focus away
  at("continue").hidden = result.remainingText.trim() === "";
  if (result.timing.serverMs !== null) {
    at("first-sound-note").textContent += `, gateway ${formatMs(result.timing.serverMs)}`;
  }
  at("heard-note").textContent = `of ${formatS(result.audioMs)}, decoder ${player.decoder}`;
  const seconds = formatS(result.playedMs);
  const words = {
    done: result.isTruncated ? `Cut off after ${seconds} by a limit of the gateway.` : `Finished after ${seconds}.`,
    cancelled: `Interrupted after ${seconds}.`,
    failed: `Failed after ${seconds}: ${result.error?.message}`,
  };
  show(words[result.reason], result.reason);
  log(words[result.reason]);
}

function interrupt() {
  if (player.contexts.length > 0) show("Silent. Asking where the text stood.");
  player.interrupt();
}

// --- files and commands ----------------------------------------------------------------------------------------------

function showCommands(settings) {
  for (const [id, command] of Object.entries(commands(settings))) at(id).textContent = command;
}

async function saveAs(format) {
  if (shown === null) return (at("saved").textContent = "Say something first.");
  at("saved").textContent = "It is made again, as a file…";
  try {
    at("saved").textContent = `Saved as ${await save(speechRequest(shown.settings, format))}.`;
  } catch (error) {
    at("saved").textContent = `Not saved: ${error.message}`;
  }
}

async function copy(id) {
  const selection = getSelection();
  selection.selectAllChildren(at(id)); // where the browser gives no clipboard to this page, Ctrl-C does it
  await navigator.clipboard?.writeText(at(id).textContent).catch(() => {});
}

// --- words -----------------------------------------------------------------------------------------------------------

function show(words, kind = "") {
  at("status").textContent = words;
  at("status").className = kind;
}

function log(words) {
  const item = document.createElement("li");
  const time = document.createElement("time");
  time.textContent = formatMs(performance.now() - shown.startMs);
  item.append(time, words);
  at("events").append(item);
}

function formatMs(ms) {
  if (ms === null) return "–";
  return ms < 10_000 ? `${Math.round(ms)} ms` : formatS(ms);
}

function formatS(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

// --- controls --------------------------------------------------------------------------------------------------------

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  speak(at("text").value);
});
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("composer").requestSubmit();
});
at("interrupt").addEventListener("click", interrupt);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") interrupt();
});
at("continue").addEventListener("click", async () => {
  const { voice, language } = shown.settings;
  speak((await shown.context.finished).remainingText, { voice, language });
});
at("decoder").addEventListener("change", createPlayer);
for (const button of document.querySelectorAll("[data-sample]")) {
  button.addEventListener("click", () => (at("text").value = SAMPLES[button.dataset.sample]));
}
at("take-away").addEventListener("toggle", () => {
  if (shown === null) showCommands({ ...chosen(), text: at("text").value });
});
for (const button of document.querySelectorAll("[data-save]")) {
  button.addEventListener("click", () => saveAs(button.dataset.save));
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button.dataset.copy));
}
new NewVoice(at("new-voice"), async (name) => {
  await showVoices();
  at("voice").value = name;
  speak("This is my new voice. How do you like it?", { voice: name });
});
for (const name of ["rate", "speed"]) {
  at(name).addEventListener("input", () => (at(`${name}-shown`).textContent = at(name).value));
}
for (const choice of document.querySelectorAll("[name=delivery]")) {
  choice.addEventListener("change", () => (at("rate-choice").hidden = choice.value === "whole"));
}

at("text").value = SAMPLES.story;
// Or a phone whose bell is off would mute this page, too (Safari).
if (navigator.audioSession) navigator.audioSession.type = "playback";
createPlayer();
