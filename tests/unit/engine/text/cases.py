"""Tables of cases, as data: what is written, and what becomes of it. `tables/said.yaml` is of the text frontend."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def cases(name: str) -> dict[str, list[Any]]:
    """The tables of one file, by their names."""
    text = (Path(__file__).parent / "tables" / f"{name}.yaml").read_text(encoding="utf-8")
    tables: dict[str, list[Any]] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tables
