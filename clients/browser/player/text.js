// A context's text as its writer holds it: pieces in, and where in it the speech is. Pure.

import { isHighSurrogate } from "./wire.js";

/** A character that is split over two pieces leaves as a whole. */
export class TextJoiner {
  #half = "";

  /** Text that can leave. */
  push(text) {
    const all = this.#half + text;
    const numWhole = all.length - (all !== "" && isHighSurrogate(all, all.length - 1) ? 1 : 0);
    this.#half = all.slice(numWhole);
    return all.slice(0, numWhole);
  }

  /** The rest: no more text follows. */
  finish() {
    const half = this.#half;
    this.#half = "";
    return half;
  }
}

/** The items of an `alignment`, with indices in `text`; `cursor` is the CodePointCursor of this text. */
export function readAlignment(items, text, cursor) {
  return items.map((item) => ({
    text: item.text,
    startMs: item.start_ms,
    endMs: item.end_ms,
    start: cursor.indexAt(text, item.char_start),
    end: cursor.indexAt(text, item.char_end),
  }));
}

/** How much of the text was heard in the first `playedMs`, in whole aligned items. A word is said until the next one
 * begins, the last one until `lastUntilMs`. */
export function heardLength(alignment, playedMs, lastUntilMs = 0) {
  const heard = alignment.filter(({ endMs }, index) => {
    return Math.max(endMs, alignment[index + 1]?.startMs ?? lastUntilMs) <= playedMs;
  });
  return heard.at(-1)?.end ?? 0;
}
