"""One context from its first text to its last audio: feed it, keep what comes, let others listen in."""

import asyncio
from collections.abc import Callable

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import Text, check_text, feed
from voicegate.clients.python.context import Context


async def record(context: Context, text: Text, on_audio: Callable[[Audio], None] | None = None) -> list[Audio]:
    """All audio of `text`. `on_audio` hears each as it comes. Raises how the context, or the text, failed."""
    check_text(text)
    feeding = asyncio.create_task(feed(context, text))
    audio: list[Audio] = []
    try:
        async for item in context:
            audio.append(item)
            if on_audio is not None:
                on_audio(item)
        await feeding
    finally:
        context.abandon()
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    return audio
