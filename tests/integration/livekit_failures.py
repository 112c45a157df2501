"""A process with livekit-agents in it: our plugin's stream is given a text that no server takes, and then a good one.

Reads the gateway's host and port and both texts in JSON. Prints the error of each stream, or null.
"""

import asyncio
import json
import logging
import sys

from livekit.agents import APIError
from livekit.plugins import voicegate

_PATIENCE_S = 60.0


async def error_of(voice: voicegate.TTS, pieces: list[str]) -> dict[str, object] | None:
    try:
        async with voice.stream() as stream:
            for piece in pieces:
                stream.push_text(piece)
            stream.end_input()
            async for _ in stream:
                pass
    except APIError as error:
        return {"message": error.message, "is_retryable": error.retryable}
    return None


async def main(gateway: str, texts: list[list[str]]) -> list[dict[str, object] | None]:
    voice = voicegate.TTS(url=f"ws://{gateway}")
    async with asyncio.timeout(_PATIENCE_S):
        errors = [await error_of(voice, pieces) for pieces in texts]
        await voice.aclose()
    return errors


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    plan = json.load(sys.stdin)
    json.dump(asyncio.run(main(plan["gateway"], plan["texts"])), sys.stdout)
