"""A folder as pieces of at most 15 MB, and back: states travel between machines that take small files alone.

python -m models.tiny.training.pack state pieces        # pieces/part-00 ...
python -m models.tiny.training.pack --back pieces state
"""

import argparse
import io
import tarfile
from pathlib import Path
from typing import Final

_PIECE_BYTES: Final = 15_000_000


def pack(folder: Path, pieces: Path, names: list[str]) -> None:
    pieces.mkdir(parents=True, exist_ok=True)
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for path in sorted(folder.glob("*.pt")):
            if not names or path.stem in names:
                archive.add(path, path.name)
    data = whole.getvalue()
    for number, start in enumerate(range(0, len(data), _PIECE_BYTES)):
        (pieces / f"part-{number:02}").write_bytes(data[start : start + _PIECE_BYTES])


def unpack(pieces: Path, folder: Path) -> None:
    data = b"".join(path.read_bytes() for path in sorted(pieces.glob("part-*")))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--back", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="stages; all without")
    options = parser.parse_args()
    if options.back:
        unpack(options.source, options.target)
    else:
        pack(options.source, options.target, options.only)


if __name__ == "__main__":
    main()
