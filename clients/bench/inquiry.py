"""Asks a server about itself beside its speech, by plain GETs. A voicegate answers them; others may know none of it."""

import asyncio
import json
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from voicegate.clients.bench.plan import Target
from voicegate.clients.python.address import path_beside, stream_url
from voicegate.clients.python.errors import InvalidInput

_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 1 << 20
_MAX_NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    server: str | None  # what it calls itself, with its version
    told: dict[str, Any]  # empty where it is no JSON object


async def ask(target: Target, path: str) -> Answer | None:
    """None: nobody answers, or not in HTTP."""
    return await asyncio.to_thread(_ask, target, path)


async def describe(target: Target) -> dict[str, str]:
    """Describes the server for results: `server` and `model`, each where it is told."""
    answer = await ask(target, "/v1/models")
    if answer is None:
        return {}
    found = {"server": answer.server, "model": _first_model(answer.told)}
    return {name: value.strip()[:_MAX_NAME_CHARS] for name, value in found.items() if value}


def _first_model(told: dict[str, Any]) -> str | None:
    """The first of a list as OpenAI has it."""
    match told:
        case {"data": [{"id": str(name)}, *_]}:
            return name
        case _:
            return None


def _ask(target: Target, path: str) -> Answer | None:
    try:
        url = stream_url(target.url)
        context, parts = target.tls_for(url), urlsplit(url)
        connection = (
            HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
            if context is None
            else HTTPSConnection(parts.netloc, timeout=_TIMEOUT_S, context=context)
        )
        with closing(connection):
            connection.request("GET", path_beside(target.url, path), headers=target.headers)
            response = connection.getresponse()
            body = response.read(_MAX_BYTES)
    except (OSError, HTTPException, ValueError, InvalidInput):
        return None
    return Answer(response.getheader("Server"), _object(body))


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
