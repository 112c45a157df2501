"""Callers: what a request says of its sender. Tag, trace, and the key of whichever vendor's client it is. Pure.

Whether anybody is let in with such a key is for others to say (gateway/auth/).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final
from urllib.parse import parse_qs

# Length of a caller's name for itself in a log line.
_MAX_TAG_CHARS: Final = 64
_TAG_HEADER: Final = "X-Client-Tag"
_TAG_PARAMETER: Final = "client_tag"
_KEY_HEADERS: Final = ("xi-api-key", "X-API-Key", "kyutai-api-key")
_KEY_PARAMETERS: Final = ("api_key", "access_token", "single_use_token", "auth_id", "xi-api-key")
_SCHEMES: Final = ("bearer", "token")
# Behind one of these a browser, which cannot set headers, names its key among the subprotocols, as Deepgram has it.
KEY_SUBPROTOCOLS: Final = ("token", "bearer")


@dataclass(frozen=True, slots=True)
class Caller:
    tag: str | None = None  # the client's own, echoed in the log
    trace_parent: str | None = None  # the span that it asks from, as W3C's Trace Context has it
    keys: tuple[str, ...] = field(default=(), repr=False)


ANYBODY: Final = Caller()


def caller_of(headers: Callable[[str], Sequence[str]], target: str) -> Caller:
    """`headers`: all values of a header; `target`: of the request, path and query."""
    query_text = target.partition("?")[2]
    query = parse_qs(query_text) if query_text else {}
    tags = [*headers(_TAG_HEADER), *query.get(_TAG_PARAMETER, ())]
    keys = [value for name in _KEY_HEADERS for value in headers(name)]
    keys += [key for value in headers("Authorization") if (key := _credential(value))]
    keys += [value for name in _KEY_PARAMETERS for value in query.get(name, ())]
    # ElevenLabs' for browsers; whether with a scheme before it no one says.
    keys += [_credential(value) or value for value in query.get("authorization", ())]
    offered = [name.strip() for value in headers("Sec-WebSocket-Protocol") for name in value.split(",")]
    keys += [key for kind, key in pairwise(offered) if kind in KEY_SUBPROTOCOLS]
    return Caller(
        tag=_shown(tags[0]) if tags else None,
        trace_parent=next(iter(headers("traceparent")), None),
        keys=tuple(dict.fromkeys(key for key in keys if key)),
    )


def _credential(authorization: str) -> str | None:
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() in _SCHEMES else None


def _shown(tag: str) -> str | None:
    return "".join(char if char.isprintable() else "?" for char in tag[:_MAX_TAG_CHARS]) or None
