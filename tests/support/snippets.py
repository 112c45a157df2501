"""The blocks of code in what users read, and each line of a shell's."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = (
    *sorted(ROOT.glob("*.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts),
    *sorted((ROOT / "clients").glob("*/README.md")),
    ROOT / "clients/browser/player/README.md",
    *sorted((ROOT / "deploy").rglob("*.md")),
    ROOT / "models/tiny/RECIPE.md",
)
_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT: Final = re.compile(r"<<-?\s*'?(\w+)'?")


@dataclass(frozen=True, slots=True)
class Snippet:
    document: str  # from the repository's root
    language: str  # "": none is told
    code: str

    @property
    def first_line(self) -> str:
        return self.code.partition("\n")[0]


def snippets() -> Iterator[Snippet]:
    for path in DOCUMENTS:
        for block in _BLOCK.finditer(path.read_text()):
            yield Snippet(
                str(path.relative_to(ROOT)), block[2], re.sub(rf"^{block[1]}", "", block[3], flags=re.MULTILINE)
            )


def commands(code: str) -> Iterator[str]:
    """A shell block's commands without remarks. Lines that a backslash joins are one, and so are here-documents."""
    lines = iter(code.splitlines())
    for line in lines:
        command = line
        while command.endswith("\\"):
            command = f"{command}\n{next(lines)}"
        if found := _HERE_DOCUMENT.search(command):
            while (more := next(lines)) != found[1]:
                command += f"\n{more}"
            command += f"\n{found[1]}"
        command = re.sub(r"\s+#\s.*$|^#.*$", "", command)
        if command.strip():
            yield command
