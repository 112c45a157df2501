// The gateway as the page shows it: whether it is there, why not, and what may be chosen.

const CONNECTION_LOST = "Connection lost, connecting again";

export class GatewayStatus {
  #pill;
  #words;
  #roundTrip;
  #wasLost = false;

  constructor(pill) {
    this.#pill = pill;
    [this.#words, this.#roundTrip] = pill.children;
  }

  async show({ state, reason }, info) {
    // A known reason need not be said again at each try.
    if (state === "connecting" && this.#wasLost) return;
    // It may be there again before it has been asked why it was not.
    if (state === "lost" && this.#pill.dataset.state === "ready") this.#words.textContent = CONNECTION_LOST;
    this.#pill.dataset.state = state;
    this.#wasLost = state === "lost";
    if (state !== "ready") this.#roundTrip.textContent = "";
    const words = {
      connecting: () => "Connecting…",
      ready: () => `Connected to ${info.model}`,
      lost: whyNotReady,
      broken: () => `This browser cannot run the player: ${reason}`,
    };
    const said = await words[state]();
    if (this.#pill.dataset.state === state && this.#words.textContent !== said) this.#words.textContent = said;
  }

  showRoundTrip(words) {
    this.#roundTrip.textContent = words;
  }
}

/** WebSockets do not tell why they were refused; /readyz does, and what needs a key as they do. */
async function whyNotReady() {
  try {
    const answer = await fetch("readyz");
    if (!answer.ok) return `The gateway is not ready: ${(await answer.text()).trim()}`;
    const { status } = await fetch(`v1/voices${location.search}`);
    return status === 401
      ? "The gateway asks for a key: open this page with ?access_token=TOKEN behind its address"
      : CONNECTION_LOST;
  } catch {
    return "The gateway cannot be reached, trying again";
  }
}

/** Fills a select with [value, label], and keeps what was chosen where it still exists. */
export function fillChoices(select, choices, preferred) {
  const isThere = choices.some(([value]) => value === select.value);
  const chosen = isThere ? select.value : preferred;
  select.replaceChildren(...choices.map(([value, label]) => new Option(label, value, false, value === chosen)));
  select.disabled = false;
}
