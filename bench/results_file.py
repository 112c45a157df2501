"""The file that a benchmark leaves: JSON, of a kind that can be compared line by line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def save(report: Mapping[str, Any], path: Path | None) -> None:
    """None: nobody wants it. Directories on the way are made."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
