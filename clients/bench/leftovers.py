"""What a server still does once everybody has left: work for nobody. Asked of a voicegate; others do not tell."""

import asyncio
import json
import time
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from voicegate.clients.bench.plan import Target
from voicegate.clients.python.address import stream_url
from voicegate.clients.python.errors import InvalidInput

# For what was cancelled to end. Lower takes a busy server's last cancels for forgotten ones.
_PATIENCE_S: Final = 3.0
_POLL_S: Final = 0.05
_TIMEOUT_S: Final = 5.0


async def left_behind(target: Target) -> dict[str, Any] | None:
    """Utterances and contexts that go on, and how long it took until there were none; None: it does not say."""
    begun_s = time.monotonic()
    while True:
        told = await asyncio.to_thread(_capacity, target)
        if told is None:
            return None
        waited_s = time.monotonic() - begun_s
        left = {name: told[name] for name in ("utterances", "contexts")}
        if not any(left.values()) or waited_s > _PATIENCE_S:
            return {**left, "after_ms": round(waited_s * 1000)}
        await asyncio.sleep(_POLL_S)


def _capacity(target: Target) -> dict[str, Any] | None:
    try:
        url = stream_url(target.url)
        context, parts = target.tls_for(url), urlsplit(url)
        connection = (
            HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
            if context is None
            else HTTPSConnection(parts.netloc, timeout=_TIMEOUT_S, context=context)
        )
        with closing(connection):
            connection.request("GET", "/v1/capacity", headers=target.headers)
            told = json.load(connection.getresponse())
    except (OSError, HTTPException, ValueError, InvalidInput):
        return None
    is_ours = isinstance(told, dict) and {"utterances", "contexts"} <= told.keys()
    return told if is_ours else None
