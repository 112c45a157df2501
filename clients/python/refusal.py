"""Reads the body of an HTTP answer with which a server refuses. Pure."""

import json
from typing import Final

_MOST_CHARS: Final = 200


def answered(where: str, status: int, body: bytes | bytearray | None, phrase: str) -> str:
    """Words for the answer. `phrase`: of the status, where the body has nothing to say."""
    return f"{where} answered HTTP {status}: {reason_in(body or b'') or phrase}"


def reason_in(body: bytes | bytearray) -> str:
    """Its message where it is the JSON of a gateway, of ours or of a vendor's kind; else its first line; or ""."""
    line = body.decode(errors="replace").strip().partition("\n")[0].rstrip()
    try:
        said = json.loads(body)
    except ValueError:
        return line[:_MOST_CHARS]
    for key in ("error", "message"):
        if isinstance(said, dict):
            said = said.get(key, said)
    return (said if isinstance(said, str) else line)[:_MOST_CHARS]
