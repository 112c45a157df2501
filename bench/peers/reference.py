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
    """Raises ValueError where it is none, with what writes one."""
    path = model / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reference)
    except (OSError, msgspec.MsgspecError) as error:
        writers = "`python -m voicegate.bench.peers.generated` and `....peers.embedded` write such a directory"
        raise ValueError(f"{model} is no peer's model ({path.name}: {error}): {writers}") from error


def recording(model: Path) -> Path:
    """For a peer that has to make the voice. Raises ValueError where there is none."""
    path = model / load(model).audio
    if not path.is_file():
        raise ValueError(f"{model} has no recording ({path} is no file), and this peer makes its voice of one")
    return path


def save(reference: Reference, model: Path) -> None:
    (model / _FILE).write_bytes(msgspec.json.encode(reference))
