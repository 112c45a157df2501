"""Sentences of the bench, as voice agents write them: `sentences.json`, by language."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec


@dataclass(frozen=True, slots=True)
class Texts:
    """By how long they take to say."""

    short: tuple[str, ...]  # a second or two
    sentences: tuple[str, ...]  # 3 to 8 s
    paragraphs: tuple[str, ...]  # about 15 s


LANGUAGES: Final = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=dict[str, Texts])
ENGLISH: Final = LANGUAGES["en"]


def words(text: str) -> list[str]:
    """As an agent's tokens come: a word with the blanks before it, or a character with the signs behind it."""
    return re.findall(r"\s*(?:[\u4e00-\u9fff][^\w\s]*|[^\s\u4e00-\u9fff]+)|\s+$", text)


def read_texts(content: str) -> Texts:
    """A user's own, one a line: the shorter third, the middle, the longer third. Raises ValueError for none."""
    lines = sorted({line.strip() for line in content.splitlines() if line.strip()}, key=len)
    if not lines:
        raise ValueError("it holds no text")
    third = len(lines) // 3
    return Texts(tuple(lines[: third + 1]), tuple(lines[third : len(lines) - third]), tuple(lines[-third - 1 :]))
