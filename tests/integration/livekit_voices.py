"""A process with livekit-agents in it: its plugins' TTS objects, each saying what it is told through a gateway.

Reads the gateway's host and port and texts in JSON, prints what was heard of each by each.
"""

import asyncio
import base64
import json
import logging
import sys

from livekit.agents import tts
from livekit.agents.utils import http_context
from livekit.plugins import cartesia, deepgram, elevenlabs, openai

_PATIENCE_S = 60.0


def voices_at(gateway: str) -> dict[str, tts.TTS]:
    return {
        "elevenlabs": elevenlabs.TTS(api_key="none", base_url=f"http://{gateway}/v1", encoding="pcm_24000"),
        "cartesia": cartesia.TTS(api_key="none", base_url=f"http://{gateway}"),
        "deepgram": deepgram.TTS(api_key="none", base_url=f"http://{gateway}/v1/speak"),
        "openai": openai.TTS(api_key="none", base_url=f"http://{gateway}/v1", response_format="pcm"),
    }


async def said(voice: tts.TTS, text: str) -> bytes:
    """Streamed where it can, word by word."""
    if not voice.capabilities.streaming:
        async with voice.synthesize(text) as stream:
            return b"".join([bytes(event.frame.data) async for event in stream])
    async with voice.stream() as stream:
        for word in text.split(" "):
            stream.push_text(f"{word} ")
        stream.end_input()
        return b"".join([bytes(event.frame.data) async for event in stream])


async def main(gateway: str, texts: list[str]) -> dict[str, list[str]]:
    heard = {}
    async with asyncio.timeout(_PATIENCE_S), http_context.open():
        for name, voice in voices_at(gateway).items():
            heard[name] = [base64.b64encode(await said(voice, text)).decode() for text in texts]
            await voice.aclose()
    return heard


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    plan = json.load(sys.stdin)
    json.dump(asyncio.run(main(plan["gateway"], plan["texts"])), sys.stdout)
