"""Requirements of the server besides our own packages, as pip reads it: requirements.py pyproject.toml EXTRA...

An image installs it in a layer below our code, so that only a change of it installs anything again.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

_OURS = re.compile(r"voicegate-tts(?:\[(?P<extra>\w+)\])?$|voicegate-tiny-model\b")


def requirements(project: dict[str, Any], *extras: str) -> Iterator[str]:
    """Requirements of the package and of these extras, with those of the extras that they name."""
    yield from project["dependencies"]
    for extra in extras:
        yield from _of_extra(project["optional-dependencies"], extra)


def _of_extra(extras: dict[str, list[str]], extra: str) -> Iterator[str]:
    for item in extras[extra]:
        ours = _OURS.match(item)
        if ours is None:
            yield item
        elif ours["extra"]:
            yield from _of_extra(extras, ours["extra"])


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        found = tomllib.load(file)["project"]
    sys.stdout.writelines(f"{line}\n" for line in requirements(found, *sys.argv[2:]))
