// The text of one context as it is spoken: heard, being heard, and still to come.

export class Transcript {
  #element;
  #spoken;
  #current;
  #pending;

  constructor(element) {
    this.#element = element;
    [this.#spoken, this.#current, this.#pending] = element.children;
  }

  /** `text` split before and after what sounds at `playedMs`. */
  show(text, alignment, playedMs) {
    // It is said until the next one begins, whether that has been told or not: a number may last beyond its end.
    const sounding = alignment.findLast((item) => item.startMs <= playedMs);
    this.#fill(text, sounding?.start ?? 0, sounding?.end ?? 0);
    this.#element.classList.remove("over");
    if (sounding !== undefined) this.#follow();
  }

  /** How it ended: what was heard, and what never will be. */
  end(text, spokenText) {
    this.#fill(text, spokenText.length, spokenText.length);
    this.#element.classList.add("over");
  }

  /** Follows a long text. A reader who points at it, or has put the focus there, has a pace of their own. */
  #follow() {
    const box = this.#element;
    const top = this.#current.offsetTop;
    const isInSight = top >= box.scrollTop && top + this.#current.offsetHeight <= box.scrollTop + box.clientHeight;
    if (!isInSight && !box.matches(":hover, :focus")) box.scrollTop = top - box.clientHeight / 3;
  }

  #fill(text, heardUpTo, soundingUpTo) {
    setText(this.#spoken, text.slice(0, heardUpTo));
    setText(this.#current, text.slice(heardUpTo, soundingUpTo));
    setText(this.#pending, text.slice(soundingUpTo));
  }
}

/** Not where nothing changes: a selection would be lost fifty times a second. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
