"""Drops long silences from the speech tokens on their way to the flow. Pure; the LLM still sees every token."""

from collections.abc import Collection, Sequence


class SilentTokenFilter:
    """Lets at most `max_run` silent or breath tokens in a row through (upstream's `llm_job`). One per LLM pass.

    Those before the first sound wait for it: a model that makes nothing else of words has said nothing of them.
    """

    def __init__(self, silent_tokens: Collection[int], max_run: int) -> None:
        self._silent_tokens = frozenset(silent_tokens)
        self._max_run = max_run
        self._run = 0
        self._waiting: list[int] | None = []  # None: there was a sound
        self.num_seen = 0  # tokens, silent ones among them

    def keep(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The tokens to pass on, in order; any split of the stream gives the same tokens."""
        if self._waiting is None and self._silent_tokens.isdisjoint(tokens):  # most often: they come one by one
            self.num_seen += len(tokens)
            self._run = 0 if tokens else self._run
            return tuple(tokens)
        kept = self._waiting or []
        for token in tokens:
            self.num_seen += 1
            self._run = self._run + 1 if token in self._silent_tokens else 0
            if self._run <= self._max_run:
                kept.append(token)
        if self._waiting is not None:
            if self._silent_tokens.issuperset(tokens):
                self._waiting = kept
                return ()
            self._waiting = None
        return tuple(kept)
