"""The Dockerfile as text: its instructions by stage, and what an image is made of."""

import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TARGETS: Final = ("cpu", "gpu", "tensorrt-llm")


def instructions() -> Iterator[str]:
    """Each on a line."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return (" ".join(line.split()) for line in text.splitlines() if line.strip() and line[0] != "#")


@cache
def stages() -> dict[str, list[str]]:
    """By name, each with its FROM."""
    found: dict[str, list[str]] = {}
    for line in instructions():
        if line.startswith("FROM "):
            _, _, name = line.partition(" AS ")
            found[name] = []
        if found:
            found[name].append(line)
    return found


def base(stage: str) -> str:
    """The stage or image that it is made from."""
    return stages()[stage][0].split()[1]


def image(target: str) -> list[str]:
    """The shipped image: the stage, after those of this file that it is made from."""
    return [*(image(base(target)) if base(target) in stages() else []), *stages()[target]]


def settings(target: str) -> dict[str, str]:
    lines = [line for line in image(target) if line.startswith("ENV")]
    return dict(word.split("=", 1) for line in lines for word in shlex.split(line)[1:])
