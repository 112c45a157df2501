"""How much of the tables of readings is read right: `python -m voicegate.bench.readings [--wrong] [--times]`.

Each table of `tests/unit/engine/text/readings/` was written before the rules. A row is right if its words are those
of one of the alternatives; case, marks and blanks do not count.
"""

import argparse
import csv
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voicegate.bench import results_file
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.segmenter import Segmenter, SegmenterConfig, TextSpan

_ROUNDS: Final = 5
TABLES_DIR: Final = Path("tests/unit/engine/text/readings")

_OF_LETTERS: Final = "en"
_MARKS: Final = re.compile(r"[\s.,?!;:\-。，？！；：、]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: tab-separated, with a head line. `\\n` in the text is a line feed."""

    text: str
    spoken: tuple[str, ...]  # alternatives, " | " between them; "(US-|)Dollar" has two of its own
    domain: str
    source: str


def languages() -> list[str]:
    return sorted(path.stem for path in TABLES_DIR.glob("*.tsv"))


def load(language: str) -> list[Row]:
    with (TABLES_DIR / f"{language}.tsv").open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, dialect="excel-tab", quoting=csv.QUOTE_NONE, strict=True)
        return [
            Row(line["text"].replace("\\n", "\n"), tuple(line["spoken"].split(" | ")), line["domain"], line["source"])
            for line in lines
        ]


def words(spoken: str, gap: str = "") -> str:
    """Words of a reading that count: neither case nor marks, and blanks where `gap` is one."""
    return _MARKS.sub(gap, spoken.casefold()).strip()


def is_right(row: Row, spoken: str, language: str) -> bool:
    """In English a blank makes letters of a word: A B is not ab."""
    if language == _OF_LETTERS:
        return words(spoken, " ") in {words(alternative, " ") for alternative in row.spoken}
    return any(re.fullmatch(_pattern(alternative), words(spoken)) for alternative in row.spoken)


def _pattern(alternative: str) -> str:
    return "".join(part if part in "(|)" else re.escape(words(part)) for part in re.split(r"([(|)])", alternative))


def read_whole(text: str, language: str) -> str:
    """As it is said where all of it comes at once, clause by clause."""
    segmenter = Segmenter(SegmenterConfig(language=language))
    return read_spans([*segmenter.push(text), *segmenter.flush()], language)


def read_spans(spans: Iterable[TextSpan], language: str) -> str:
    reader = SpanReader(language)
    parts: list[str] = []
    for span in spans:
        parts.append(reader.read(span))
        reader.note_said(span)
    return " ".join(filter(None, parts))


def measure(language: str) -> tuple[list[tuple[Row, str]], dict[str, tuple[int, int]]]:
    """The rows that are read wrong, with what is said; domain -> how many are right, of how many."""
    rows = load(language)
    wrong = [(row, said) for row in rows if not is_right(row, said := read_whole(row.text, language), language)]
    return wrong, _shares((row.domain for row in rows), (row.domain for row, _ in wrong))


def clause_times_ms(language: str) -> list[float]:
    """How long each clause of the table takes to be read: the shortest of several rounds, behind what was before it."""
    times_ms: list[float] = []
    for row in load(language):
        segmenter, reader = Segmenter(SegmenterConfig(language=language)), SpanReader(language)
        for span in [*segmenter.push(row.text), *segmenter.flush()]:
            rounds_s = [_time_s(reader, span) for _ in range(_ROUNDS)]
            times_ms.append(min(rounds_s) * 1000)
            reader.note_said(span)
    return times_ms


def _time_s(reader: SpanReader, span: TextSpan) -> float:
    started_s = time.thread_time()
    reader.read(span)
    return time.thread_time() - started_s


def _shares(domains: Iterable[str], wrong: Iterable[str]) -> dict[str, tuple[int, int]]:
    num_of, num_wrong = Counter(domains), Counter(wrong)
    return {domain: (num - num_wrong[domain], num) for domain, num in num_of.items()}


def _percent(right: int, num: int) -> str:
    return f"{100 * right / num:5.1f} % ({right} of {num})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--language", action="append", choices=languages(), help="may be repeated (default: all)")
    parser.add_argument("--wrong", action="store_true", help="print the rows that are read wrong, too")
    parser.add_argument("--times", action="store_true", help="print how long a clause takes to be read, too")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for language in options.language or languages():
        wrong, shares = measure(language)
        right, num = map(sum, zip(*shares.values(), strict=True))
        results[language] = {"right": right, "of": num, "by_domain": shares}
        print(f"{language:16}{_percent(right, num)}")
        for domain, share in shares.items():
            print(f"  {domain:14}{_percent(*share)}")
        if options.times:
            times_ms = clause_times_ms(language)
            median_ms, longest_ms = statistics.median(times_ms), max(times_ms)
            results[language] |= {"median_clause_ms": median_ms, "longest_clause_ms": longest_ms}
            print(f"  each of {len(times_ms)} clauses takes {median_ms:.3f} ms at the median, {longest_ms:.3f} at most")
        for row, said in wrong if options.wrong else ():
            print(f"  {row.text!r}\n    said   {said}\n    right  {' | '.join(row.spoken)}")
    results_file.save(results, options.json)


if __name__ == "__main__":
    main()
