"""The OpenAPI document of all that HTTP answers, served at /openapi.json: `openapi.yaml`, with what a server adds."""

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from voicegate import __version__


@lru_cache(maxsize=1)
def _described() -> dict[str, Any]:
    return msgspec.yaml.decode(Path(__file__).with_suffix(".yaml").read_bytes(), type=dict[str, Any])


def document(*, asks_for_keys: bool = False, open_paths: frozenset[str] = frozenset()) -> dict[str, Any]:
    """`open_paths`: where no key is asked for."""
    described = deepcopy(_described())
    described["info"]["version"] = __version__
    schemes = described["components"].pop("securitySchemes")
    if asks_for_keys:
        described["components"]["securitySchemes"] = schemes
        described["security"] = [{place: []} for place in schemes]
        for path in open_paths.intersection(described["paths"]):
            for operation in described["paths"][path].values():
                operation["security"] = []
    return described
