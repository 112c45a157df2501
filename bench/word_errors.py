"""Word error rate, before it is divided by the words."""

from collections.abc import Sequence


def word_errors(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance in words: substitutions, deletions and insertions."""
    previous = list(range(len(heard) + 1))
    for row, wanted in enumerate(reference, 1):
        current = [row]
        for column, word in enumerate(heard, 1):
            substitution = previous[column - 1] + (wanted != word)
            current.append(min(substitution, previous[column] + 1, current[-1] + 1))
        previous = current
    return previous[-1]
