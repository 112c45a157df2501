"""Speak what an LLM answers while it writes: an OpenAI-style completion stream piped into voicegate.

export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=llama3.2
python -m voicegate.clients.examples.llm_to_speech "Hello!"
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing
from pathlib import Path

from voicegate.clients.examples.chat import LlmError, llm_of_environment
from voicegate.clients.python.client import connect
from voicegate.clients.python.errors import GateError, MissingDependency
from voicegate.clients.python.files import write_audio
from voicegate.clients.python.playback import SoundCard
from voicegate.clients.python.recording import record
from voicegate.clients.python.report import timeline_lines, timeline_of
from voicegate.clients.python.threaded import iterate_in_thread


async def speak(pieces: AsyncIterable[str], *, url: str, voice: str | None, output: Path | None) -> None:
    """To a file, or to the sound card as the audio comes."""
    async with connect(url) as gate:
        context = await gate.open(voice=voice)
        if output is not None:
            audio = await record(context, pieces)
            write_audio(output, context.opened, audio)
        else:
            async with SoundCard(context.opened) as card:
                audio = await record(context, pieces, card.play)
                await card.drained()
    print("\n" + "\n".join(timeline_lines(timeline_of(context, audio))))


async def shown(pieces: AsyncIterable[str]) -> AsyncIterator[str]:
    """Also on the terminal, as they come."""
    async for piece in pieces:
        print(piece, end="", flush=True)
        yield piece


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt")
    parser.add_argument("--url", default="ws://127.0.0.1:8080", help="of the gateway")
    parser.add_argument("--voice")
    parser.add_argument("-o", "--output", type=Path, help=".wav or .opus; without it, the sound card")
    options = parser.parse_args()
    llm = llm_of_environment()

    async def run() -> None:
        async with aclosing(
            iterate_in_thread(lambda: llm.answer([{"role": "user", "content": options.prompt}]))
        ) as pieces:
            await speak(shown(pieces), url=options.url, voice=options.voice, output=options.output)

    try:
        asyncio.run(run())
    except (LlmError, GateError, OSError) as error:
        remedy = "; or write a file with -o" if isinstance(error, MissingDependency) else ""
        print(f"llm_to_speech: {error}{remedy}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):  # the second where the loop was not running yet
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
