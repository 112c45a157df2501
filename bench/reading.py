"""Cost of reading text in the engine's thread: `python -m voicegate.bench.reading [--json FILE] [--text NAME]`.

Messages of 16 KiB, plain and hostile, read bite by bite to the end as if speech needed all of it. Of every bite the
shortest time of several rounds, so that neighbours on the machine do not count; of those, the longest and the sum.
Numbers differ from round to round: nothing is read from a cache.
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Listing
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer

_MODEL_DIR: Final = Path("models/tiny")
_MESSAGE_CHARS: Final = 16 * 1024
_ROUNDS: Final = 5

Unit = Callable[[random.Random], str]


def _always(unit: str) -> Unit:
    return lambda _: unit


# Units that a message repeats.
UNITS: Final[dict[str, Unit]] = {
    "prose": _always("The quick brown fox jumps over the lazy dog, and then it sleeps for a while under a tree. "),
    "Chinese prose": _always("他们到的时候，房子里已经没有人了，谁也不知道钥匙放在哪里。"),
    "tokens of an LLM's list": lambda rng: (
        f"{rng.randrange(100)}. **Item {rng.random():.3f}** costs ${rng.randrange(9999)}.\n"
    ),
    "counts": lambda rng: f"{rng.randrange(1000, 9999):,}, ",
    "counts without blanks": lambda rng: f"{rng.randrange(1000, 9999):,},",
    "amounts": lambda rng: f"${rng.randrange(10**6):,}.{rng.randrange(10, 99)} ",
    "digits": lambda rng: str(rng.randrange(10)),
    "decimals": lambda rng: f"{rng.randrange(10)}.",
    "times": lambda rng: f"{rng.randrange(10)}:",
    "letters and digits": lambda rng: f"a{rng.randrange(10)}",
    "Chinese counts": lambda rng: f"有{rng.randrange(10**7)}个，",
    "Chinese digits": lambda rng: f"{rng.randrange(10)}年",
    "Chinese amounts": lambda rng: f"￥{rng.random() * 1000:.2f}",
    "one word": _always("x"),
    "one Chinese word": _always("好"),
    "dots": _always("."),
    "line feeds": _always("\n"),
    "blanks": _always(" "),
    "combining marks": _always("e" + "\u0301" * 20),
    "phrases in a character": _always("\ufdfa"),
    "think tags": _always("<think>"),
    "open tags": _always("<a "),
    "open links": _always("[a](b"),
    "closed links": _always("[a](http://b.c/d) "),
    "backticks": _always("`"),
    "fences": _always("```\n"),
    "dollars": _always("$"),
    "formulas": _always("$x^2_i$ "),
    "fractions": _always("\\frac{1}{2}"),
    "addresses": _always("a_b@c.de "),
    "dots in letters": _always("a."),
    "abbreviations": _always("Dr. "),
    "initials": _always("A. "),
    "list items": _always("- a\n"),
    "tables": _always("| 1 "),
    "quotation marks": _always('"'),
    "laughter": _always("[laughter]"),
    "emoji": _always("👨\u200d👩"),
    "entities": _always("&amp;"),
    "letters by name": _always("WX "),
    "signs": _always("≥ a "),
}


def message(name: str, *, num_chars: int, seed: int = 0) -> str:
    """A message of the named unit, so many characters."""
    rng, unit = random.Random(seed), UNITS[name]
    parts: list[str] = []
    length = 0
    while length < num_chars:
        parts.append(unit(rng))
        length += len(parts[-1])
    return "".join(parts)[:num_chars]


def bite_times_s(text: str, mode: SpeakingMode, tokenizer: TextTokenizer, *, max_clause_tokens: int) -> list[float]:
    """How long each call of `read` took, until all is read."""
    feed = ClauseFeed(Listing(0), mode, tokenizer, language="en", max_clause_tokens=max_clause_tokens)
    feed.push(text)
    feed.end()
    times_s: list[float] = []
    while feed.has_unread:
        started_s = time.thread_time()
        feed.read()
        times_s.append(time.thread_time() - started_s)
        while feed.clauses and feed.clauses[0].is_text_complete:  # as if spoken
            feed.clauses.popleft()
    return times_s


def measure(name: str, mode: SpeakingMode, tokenizer: TextTokenizer) -> dict[str, Any]:
    max_clause_tokens = EngineConfig(_MODEL_DIR).max_clause_tokens
    rounds = [
        bite_times_s(
            message(name, num_chars=_MESSAGE_CHARS, seed=seed), mode, tokenizer, max_clause_tokens=max_clause_tokens
        )
        for seed in range(_ROUNDS)
    ]
    best_s = [min(times_s) for times_s in zip(*rounds, strict=False)]
    return {
        "text": name,
        "mode": mode.value,
        "num_bites": len(best_s),
        "longest_bite_ms": round(max(best_s) * 1000, 3),
        "all_ms": round(sum(best_s) * 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--text", action="append", choices=UNITS, help="one of the texts; may be repeated (default: all)"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    end_of_prompt_id = load_model_config(_MODEL_DIR).llm.end_of_prompt_id
    tokenizer = TextTokenizer.from_file(_MODEL_DIR / "tokenizer.json", end_of_prompt_id=end_of_prompt_id)
    rows = []
    for mode in (SpeakingMode.CLAUSE, SpeakingMode.BISTREAM):
        for name in options.text or UNITS:
            row = measure(name, mode, tokenizer)
            rows.append(row)
            figures = f"{row['num_bites']:7} bites {row['longest_bite_ms']:7.2f} ms at most {row['all_ms']:8.1f} in all"
            print(f"{row['mode']:9}{name:25}{figures}")
    results_file.save({"environment": environment.describe(), "rows": rows}, options.json)


if __name__ == "__main__":
    main()
