"""Tell which words a model loses that its teacher does not: by place, by kind of sentence, and how.

    python -m models.tiny.training.evaluate --teachers woman man --kokoro DIR --output teachers.json
    python -m models.tiny.training.evaluate --model models/tiny --voices woman man --seeds 3 --output model.json
    python -m models.tiny.training.lost_words model.json teachers.json

A word is the recogniser's own error where the teacher's speech has one at it, or beside it.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicegate.bench.recogniser import words_of

from .held_out import QUESTIONS
from .texts import clauses
from .voices import VOICES


@dataclass(frozen=True, slots=True)
class Lost:
    """An error: at which word of the text, and what was heard; "" for nothing. `is_inserted`: before that word."""

    place: int
    heard: str
    is_inserted: bool = False


def lost(wanted: Sequence[str], heard: Sequence[str]) -> list[Lost]:
    """Fewest substitutions, deletions and insertions; where several ways are as short, substitutions go first."""
    rows, columns = len(wanted) + 1, len(heard) + 1
    costs = [[row + column if not row or not column else 0 for column in range(columns)] for row in range(rows)]
    for row in range(1, rows):
        for column in range(1, columns):
            same = costs[row - 1][column - 1] + (wanted[row - 1] != heard[column - 1])
            costs[row][column] = min(same, costs[row - 1][column] + 1, costs[row][column - 1] + 1)
    found: list[Lost] = []
    row, column = len(wanted), len(heard)
    while row or column:
        is_other = bool(row and column) and wanted[row - 1] != heard[column - 1]
        if row and column and costs[row][column] == costs[row - 1][column - 1] + is_other:
            row, column = row - 1, column - 1
            if is_other:
                found.append(Lost(row, heard[column]))
        elif row and costs[row][column] == costs[row - 1][column] + 1:
            row -= 1
            found.append(Lost(row, ""))
        else:
            column -= 1
            found.append(Lost(row, heard[column], is_inserted=True))
    return found[::-1]


def kinds(text: str, error: Lost) -> Iterator[str]:
    """Name the kind of sentence, of place and of error."""
    words = words_of(text)
    ends: list[int] = []
    for clause in clauses(text):
        ends.append((ends[-1] if ends else 0) + len(words_of(clause)))
    yield "in questions" if text in QUESTIONS else "in statements"
    if error.is_inserted:
        yield "more words after a clause" if error.place in ends else "more words within a clause"
        return
    if error.place in (0, *ends):
        yield "first word of a clause"
    elif error.place + 1 in ends:
        yield "last word of a clause"
    else:
        yield "within a clause"
    if not error.heard:
        yield "nothing heard"
    elif error.heard.replace("'", "") == words[error.place] + "s":
        yield "an s more"
    else:
        yield "another word heard"


def counted(model: dict[str, Any], teacher: dict[str, Any]) -> Counter[str]:
    own: dict[str, set[int]] = {}
    for row in teacher["sentences"]:
        places = {each.place for each in lost(words_of(row["text"]), row["heard"].split())}
        own[row["text"]] = {place + near for place in places for near in (-1, 0, 1)}
    counts: Counter[str] = Counter()
    for row in model["sentences"]:
        counts["words"] += row["words"]
        counts["words in questions"] += row["words"] * (row["text"] in QUESTIONS)
        for error in lost(words_of(row["text"]), row["heard"].split()):
            counts["errors"] += 1
            if error.place in own[row["text"]]:
                counts["the recogniser's own"] += 1
            else:
                counts.update(kinds(row["text"], error))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="what `evaluate --model` has written")
    parser.add_argument("teachers", type=Path, help="what `evaluate --teachers` has written, of all the sentences")
    options = parser.parse_args()
    teachers = {each["teacher"]: each for each in json.loads(options.teachers.read_text())}
    by_voice = {
        each["voice"]: counted(each, teachers[each["voice"]])
        for each in json.loads(options.model.read_text())
        if each["voice"] in VOICES
    }
    print("| " + " | ".join(["", *by_voice]) + " |\n" + "|---" * (len(by_voice) + 1) + "|")
    for kind in dict.fromkeys(kind for counts in by_voice.values() for kind in counts):
        print("| " + " | ".join([kind, *(str(counts[kind]) for counts in by_voice.values())]) + " |")


if __name__ == "__main__":
    main()
