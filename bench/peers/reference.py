"""reference.json of a peer's model: the recording that it gets, and the name of that voice in ours."""

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "reference.json"


class Reference(msgspec.Struct, frozen=True):
    audio: str  # beside the file; "": the peer has the voice already
    transcript: str  # as the peer takes it, with an instruction in front
    voice: str


def load(model: Path) -> Reference:
    """Raises OSError, ValueError."""
    return msgspec.json.decode((model / _FILE).read_bytes(), type=Reference)


def save(reference: Reference, model: Path) -> None:
    (model / _FILE).write_bytes(msgspec.json.encode(reference))
