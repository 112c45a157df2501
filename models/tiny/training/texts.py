"""The training text, one line an utterance: what agents say, dictionary sentences, lines of random words.

    python -m models.tiny.training.texts --lines 120000 --output texts.txt

Wants Debian's `wordnet-base` and `fortunes`, and the package `wordfreq` (its ranking of words alone is used).
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .grammar import sentence
from .held_out import HELD_OUT

_WORDNET: Final = Path("/usr/share/wordnet")
_FORTUNES: Final = Path("/usr/share/games/fortunes")
# Fortunes that are prose; others are dialogue, code, or rude.
_FORTUNE_FILES: Final = (
    "education",
    "food",
    "fortunes",
    "humorists",
    "law",
    "literature",
    "love",
    "medicine",
    "men-women",
    "people",
    "pets",
    "platitudes",
    "science",
    "sports",
    "wisdom",
    "work",
)
_CLEAN: Final = re.compile(r"[A-Za-z' ,]+[.?!]?")
_MIN_WORDS, _MAX_WORDS = 3, 32
_NUM_RANKED_WORDS: Final = 40_000
# Shares of the kinds of line.
_AGENT, _PAIR, _PROSE, _RANDOM = 0.42, 0.14, 0.28, 0.16
_IN_CLAUSES: Final = 0.3  # share of the lines with a comma: each clause becomes a line by itself


def prose() -> list[str]:
    """Examples and glosses of WordNet, and fortunes: sentences of plain words."""
    found: set[str] = set()
    for part in ("noun", "verb", "adj", "adv"):
        for line in (_WORDNET / f"data.{part}").read_text().splitlines():
            gloss = line.partition("| ")[2]
            found.update(re.findall(r'"([^"]+)"', gloss))
            found.add(gloss.partition(";")[0])
    for name in _FORTUNE_FILES:
        path = _FORTUNES / name
        text = path.read_text(errors="ignore") if path.exists() else ""
        for fortune in text.split("\n%\n"):
            found.update(re.split(r"(?<=[.?!])\s+", " ".join(fortune.split("\t\t--")[0].split())))
    return sorted(filter(None, map(_cleaned, found)))


def _cleaned(text: str) -> str | None:
    text = text.strip().replace(" - ", ", ")
    num_words = len(text.split())
    if not _CLEAN.fullmatch(text) or not _MIN_WORDS <= num_words <= _MAX_WORDS or re.search(r"\b[A-Z]{2,}\b", text):
        return None
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")


def _random_words(words: list[str], rng: random.Random) -> str:
    """Every word gets its turn, common ones more often; commas now and then."""
    num_words = rng.randint(4, 14)
    chosen = [words[int(len(words) * rng.random() ** 2)] for _ in range(num_words)]
    line = " ".join(word + ("," if rng.random() < 0.12 else "") for word in chosen).rstrip(",")
    return line[0].upper() + line[1:] + rng.choice("...?!")


def clauses(line: str) -> list[str]:
    """As the engine gives them to the LLM. A model that saw whole sentences alone did not end at a comma."""
    return re.findall(r"[^\s,][^,]*,?", line)


def lines(seed: int) -> Iterator[str]:
    rng = random.Random(f"clauses {seed}")
    for line in whole_lines(seed):
        yield from clauses(line) if "," in line and rng.random() < _IN_CLAUSES else [line]


def whole_lines(seed: int) -> Iterator[str]:
    from wordfreq import top_n_list  # noqa: PLC0415 - nothing else of this package needs it

    rng = random.Random(seed)
    words = [word for word in top_n_list("en", _NUM_RANKED_WORDS) if re.fullmatch(r"[a-z]{2,}", word)] + ["a", "i"]
    sentences = prose()
    rng.shuffle(sentences)
    next_prose = 0
    while True:
        kind = rng.random()
        if kind < _AGENT:
            yield sentence(rng)
        elif kind < _AGENT + _PAIR:
            yield f"{sentence(rng)} {sentence(rng)}"
        elif kind < _AGENT + _PAIR + _PROSE:
            yield sentences[next_prose % len(sentences)]
            next_prose += 1
        else:
            yield _random_words(words, rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    held_out = [text.rstrip(".?!").lower() for text in HELD_OUT]
    kept: list[str] = []
    for line in lines(options.seed):
        if not any(text in line.lower() for text in held_out):
            kept.append(line)
        if len(kept) == options.lines:
            break
    options.output.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
