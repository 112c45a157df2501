"""Talk with an LLM from a terminal: type, hear the answer, and type again to interrupt it.

export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=llama3.2
python -m voicegate.clients.examples.terminal_assistant
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

from voicegate.clients.examples.assistant import Assistant, OpenPlayer, Player
from voicegate.clients.examples.chat import llm_of_environment
from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import connect
from voicegate.clients.python.errors import GateError, MissingDependency
from voicegate.clients.python.files import write_audio
from voicegate.clients.python.playback import SoundCard, find_sound_device
from voicegate.clients.python.threaded import iterate_in_thread
from voicegate.protocol import messages as wire


class Recorder:
    """A player for machines without a sound card: an answer becomes a file, also as far as it came."""

    def __init__(self) -> None:
        self.audio: list[Audio] = []

    def play(self, audio: Audio) -> None:
        self.audio.append(audio)

    def stop(self) -> int:
        return sum(audio.duration_48k for audio in self.audio) // 48

    async def drained(self) -> None:
        pass


@asynccontextmanager
async def recorder(opened: wire.Opened, *, folder: Path, numbers: "count[int]") -> AsyncIterator[Player]:
    player = Recorder()
    try:
        yield player
    finally:
        write_audio(folder / f"answer-{next(numbers)}.opus", opened, player.audio)


def sound_card(opened: wire.Opened) -> AbstractAsyncContextManager[Player]:
    return SoundCard(opened)


async def converse(url: str, open_player: OpenPlayer, lines: AsyncIterator[str], *, voice: str | None) -> None:
    """Until the lines end; the last answer is heard first."""
    async with connect(url) as gate:
        assistant = Assistant(
            gate, llm_of_environment(), open_player, voice=voice, on_text=show, on_failure=show_failure
        )
        async for line in lines:
            if question := line.strip():
                await assistant.ask(question)
            else:
                await assistant.interrupt()
        await assistant.finished()


def show(piece: str) -> None:
    print(piece, end="", flush=True)


def show_failure(error: Exception) -> None:
    print(f"\n(no answer: {error})", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="ws://127.0.0.1:8080", help="of the gateway")
    parser.add_argument("--voice")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="for files; without it, the sound card")
    options = parser.parse_args()
    try:
        if options.output is None:
            find_sound_device()
            open_player: OpenPlayer = sound_card
        else:
            options.output.mkdir(parents=True, exist_ok=True)
            open_player = partial(recorder, folder=options.output, numbers=count(1))
        print("Type and press Enter; an empty line silences the answer, the end of input (Ctrl-D) ends.")
        asyncio.run(converse(options.url, open_player, iterate_in_thread(lambda: sys.stdin), voice=options.voice))
    except (GateError, OSError) as error:
        remedy = "; or write files with -o FOLDER" if isinstance(error, MissingDependency) else ""
        print(f"terminal_assistant: {error}{remedy}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):  # the second where the loop was not running yet
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
