// The voices, to be heard one by one, and the form that adds one.

import { readable, Recorder } from "./recording.js";
import { problemOf } from "./take_away.js";

// A voice is best judged by a sentence of its own language.
const GREETINGS = {
  en: "Hello! This is how I sound. Shall we go on?",
  zh: "你好！我的声音就是这样。我们继续吧？",
  ja: "こんにちは。私の声はこんな感じです。続けましょうか？",
  ko: "안녕하세요! 제 목소리는 이렇습니다. 계속할까요?",
  de: "Hallo! So klinge ich. Machen wir weiter?",
  fr: "Bonjour ! Voici ma voix. On continue ?",
  es: "¡Hola! Así sueno. ¿Seguimos?",
  it: "Ciao! Questa è la mia voce. Andiamo avanti?",
  ru: "Здравствуйте! Так звучит мой голос. Продолжим?",
};
const ANY = "";

/** The language of a tag: en of en-GB. */
const base = (tag) => tag?.split("-")[0] ?? ANY;

/** A language's name in the user's own; the tag itself where the browser knows none. */
export function languageName(tag) {
  try {
    return new Intl.DisplayNames(undefined, { type: "language" }).of(tag);
  } catch {
    return tag;
  }
}

export class Gallery {
  #list;
  #language;
  #voices = [];
  #hear;

  /** `hear({voice, language, text})` speaks. */
  constructor(list, language, hear) {
    this.#list = list;
    this.#language = language;
    this.#hear = hear;
    language.addEventListener("change", () => this.#draw());
  }

  show(voices) {
    this.#voices = voices;
    const tags = [...new Set(voices.map((voice) => base(voice.language)).filter((tag) => tag !== ANY))].sort();
    const chosen = tags.includes(this.#language.value) ? this.#language.value : ANY;
    const choices = [[ANY, "all languages"], ...tags.map((tag) => [tag, languageName(tag)])];
    this.#language.replaceChildren(
      ...choices.map(([value, label]) => new Option(label, value, false, value === chosen)),
    );
    this.#draw();
  }

  #draw() {
    const wanted = this.#language.value;
    const shown = this.#voices.filter((voice) => wanted === ANY || base(voice.language) === wanted);
    const focused = this.#list.contains(document.activeElement) ? document.activeElement.dataset.voice : null;
    this.#list.replaceChildren(...shown.map((voice) => this.#entry(voice)));
    // An element that is replaced takes the focus with it.
    for (const button of this.#list.querySelectorAll("button")) if (button.dataset.voice === focused) button.focus();
  }

  #entry({ name, description, language }) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Hear";
    button.dataset.voice = name;
    button.setAttribute("aria-label", `Hear ${name}`);
    const tag = language ?? undefined;
    button.addEventListener("click", () => {
      this.#hear({ voice: name, language: tag, text: GREETINGS[base(tag)] ?? GREETINGS.en });
    });
    const words = document.createElement("div");
    const title = document.createElement("strong");
    title.textContent = name;
    const about = document.createElement("small");
    about.textContent = [description, tag && languageName(tag)].filter(Boolean).join(" · ");
    words.append(title, about);
    item.append(button, words);
    return item;
  }
}

/** The form: a recording becomes a voice of this gateway, and is heard. */
export class NewVoice {
  #form;
  #at;
  #recorder = new Recorder();
  #recorded = null; // a WAV of the microphone; a file that is chosen later takes its place
  #isBusy = false; // with what was asked last: a second press is no second wish
  #added;

  /** `added(name)` is told of each. */
  constructor(form, added) {
    this.#form = form;
    this.#at = (id) => form.querySelector(`#${id}`);
    this.#added = added;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#once(() => this.#add(), (error) => this.#say(error.message, "failed"));
    });
    this.#at("record").addEventListener("click", () => {
      this.#once(() => this.#record(), (error) => this.#say(`No recording: ${error.message}`, "failed"));
    });
    this.#at("recording").addEventListener("change", () => this.#take(null));
    this.#at("play-recording").addEventListener("click", () => play(this.#recorded));
  }

  async #once(act, fail) {
    if (this.#isBusy) return;
    this.#isBusy = true;
    await act().catch(fail);
    this.#isBusy = false;
  }

  async #record() {
    if (!this.#recorder.isRunning) {
      await this.#recorder.start();
      this.#at("record").textContent = "Stop";
      return this.#say("Recording. Speak as you want to be heard, for 5 to 15 seconds.");
    }
    this.#at("record").textContent = "Record";
    this.#take(await this.#recorder.stop());
    this.#at("recording").value = "";
    this.#say("Recorded. Write down what you said, word for word.");
  }

  #take(recorded) {
    this.#recorded = recorded;
    this.#at("play-recording").hidden = recorded === null;
  }

  async #add() {
    if (this.#recorder.isRunning) return this.#say("Stop the recording first.", "failed");
    const [file] = this.#at("recording").files;
    const recording = this.#recorded ?? (file && (await readable(file)));
    if (!recording) return this.#say("Record something, or choose a file.", "failed");
    const name = this.#at("new-name").value.trim();
    const key = this.#at("new-key").value;
    const body = new FormData();
    body.set("name", name);
    body.set("transcript", this.#at("new-transcript").value);
    body.set("recording", recording, recording.name ?? "recording.wav");
    this.#say("The gateway makes the voice…");
    const answer = await fetch(`v1/voices${key ? "" : location.search}`, {
      method: "POST",
      headers: key ? { Authorization: `Bearer ${key}` } : {},
      body,
    });
    if (!answer.ok) throw new Error(await problemOf(answer));
    const { remark } = await answer.json();
    this.#say(remark ? `${name} is there: ${remark}.` : `${name} is there.`);
    this.#form.reset();
    this.#take(null);
    this.#added(name);
  }

  #say(words, kind = "") {
    this.#at("added").textContent = words;
    this.#at("added").className = kind;
  }
}

/** By Web Audio: the page's policy lets no media element have what the page made itself. */
async function play(blob) {
  const context = new AudioContext();
  const source = context.createBufferSource();
  source.buffer = await context.decodeAudioData(await blob.arrayBuffer());
  source.connect(context.destination);
  source.addEventListener("ended", () => context.close());
  source.start();
}
