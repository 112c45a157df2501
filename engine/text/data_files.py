"""Reads the files below `data/`: tags, and languages as data. docs/languages.md tells of each entry of a language's."""

from pathlib import Path
from typing import Final, TypeVar

import msgspec

DATA_DIR: Final = Path(__file__).parent / "data"

_Kind = TypeVar("_Kind")


class LanguageError(ValueError):
    """A file is not usable. The message names the file and what is wrong."""


def read_data(name: str, kind: type[_Kind]) -> _Kind:
    """`name` without its ending. Raises LanguageError."""
    path = DATA_DIR / f"{name}.yaml"
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise LanguageError(f"{path}: {error}") from error


def languages_with_data() -> frozenset[str]:
    """Languages that need no code of their own."""
    return frozenset(path.stem for path in (DATA_DIR / "languages").glob("*.yaml"))
