"""Compresses audio for clients in threads of its own: a live stream never waits in line behind other work."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.formats import OutputFormat

# The event loop's shared threads also join files of jobs and look up hosts, which may take minutes.
_THREADS: Final = ThreadPoolExecutor(thread_name_prefix="encoder")


async def encoded(encoder: StreamEncoder, output: OutputFormat, message: AudioMessage) -> bytes:
    if not output.is_costly:
        return encoder.take(message)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, encoder.take, message)
