"""Speak what an LLM answers while it writes: an OpenAI-style completion stream piped into voicegate.

export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=llama3.2
python -m voicegate.clients.examples.llm_to_speech "Hello!"
"""

import argparse
import asyncio
import os
import sys
import urllib.request
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import orjson

from voicegate.clients.python.client import connect
from voicegate.clients.python.errors import GateError, MissingDependency
from voicegate.clients.python.files import write_audio
from voicegate.clients.python.playback import SoundCard
from voicegate.clients.python.recording import record
from voicegate.clients.python.report import timeline_lines, timeline_of
from voicegate.clients.python.threaded import iterate_in_thread


class LlmError(Exception):
    """The LLM's server did not answer as expected; the message says what it did."""


@dataclass(frozen=True, slots=True)
class Llm:
    """Any server with OpenAI's /chat/completions."""

    base_url: str
    model: str
    api_key: str = ""
    timeout_s: float = 60.0

    def answer(self, prompt: str) -> Iterator[str]:
        """Blocking: the pieces of the answer, as they come. Raises LlmError."""
        body = {"model": self.model, "stream": True, "messages": [{"role": "user", "content": prompt}]}
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(f"{self.base_url}/chat/completions", orjson.dumps(body), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                yield from content_of(response)
        except HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")[:300]
            raise LlmError(f"{error.url} answered HTTP {error.code}: {reason}") from error
        except (URLError, OSError) as error:
            raise LlmError(f"{self.base_url}: {getattr(error, 'reason', error)}") from error


def content_of(lines: Iterable[bytes]) -> Iterator[str]:
    """The text in a stream of server-sent events. Raises LlmError."""
    for line in lines:
        if not line.startswith(b"data:"):
            continue  # comments, other fields, the blank line between events
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        try:
            event: dict[str, Any] = orjson.loads(data)
            if "error" in event:
                raise LlmError(f"the LLM failed: {event['error']}")
            choices = event["choices"]
            content = choices[0]["delta"].get("content") if choices else None
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise LlmError(f"not a completion chunk: {data[:200]!r}") from error
        if content:
            yield content


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
    llm = Llm(
        base_url=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/"),
        model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        api_key=os.environ.get("OPENAI_API_KEY", ""),
    )

    async def run() -> None:
        async with aclosing(iterate_in_thread(lambda: llm.answer(options.prompt))) as pieces:
            await speak(shown(pieces), url=options.url, voice=options.voice, output=options.output)

    try:
        asyncio.run(run())
    except (LlmError, GateError, OSError) as error:
        remedy = "; or write a file with -o" if isinstance(error, MissingDependency) else ""
        print(f"llm_to_speech: {error}{remedy}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
