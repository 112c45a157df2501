// Text as an agent writes it: word by word, at a steady pace.

/** Words with the blanks around them, `wordsPerSecond` of them; Infinity: all at once. */
export async function* paced(text, wordsPerSecond) {
  const words = wordsPerSecond === Infinity ? [text] : (text.match(/\s*\S+\s*/gu) ?? []);
  const startMs = performance.now();
  for (const [n, word] of words.entries()) {
    // By the clock: a late timer must not make the writer slower.
    const waitMs = startMs + (n * 1000) / wordsPerSecond - performance.now();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
    yield word;
  }
}
