"""`pipecat-ai`'s speech services in bots of their own process: they hear what a native client hears."""

import asyncio
import base64
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.integration.configurations import configurations
from tests.integration.plugins import installed_plugin
from tests.integration.processes import python
from tests.integration.wire_client import Served, native_turns, serving
from voicegate.engine.fake.engine import Script

PACKAGES = Path(sys.prefix) / "pipecat"
BOT = Path(__file__).with_name("pipecat_bot.py")
# In the order of docs/compatibility.md; and our own, by the native protocol.
SERVICES = ("elevenlabs", "cartesia", "deepgram", "openai", "voicegate")
PATIENCE_S = 90
# In real time, so that there is something to interrupt.
SCRIPT = Script(real_time_factor=1.0)
LONG = "word " * 60 + "word. "
HELLO, MORE, LAST = "Hello there, and more.", "A second turn.", "The third."
TURNS = (
    {"text": HELLO},
    {"text": LONG, "interrupted": "after it has ended"},
    {"text": MORE},
    {"text": LONG + "And there is more", "interrupted": "while the LLM goes on"},
    {"text": LAST},
)


Bots = Callable[[list[dict[str, Any]]], Awaitable[list[list[dict[str, Any]]]]]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bots() -> AsyncIterator[Bots]:
    """Heard audio of each turn, by plan. One process makes all bots: pipecat takes seconds to import."""
    if not PACKAGES.is_dir():
        pytest.fail(f"no pipecat in {PACKAGES}: `make unit` puts it there")
    # Unbuffered, Python drops the rest of a long line whose writing a signal interrupts.
    path = os.pathsep.join((str(PACKAGES), str(installed_plugin("pipecat"))))
    environment = {**os.environ, "PYTHONPATH": path, "LOGURU_LEVEL": "ERROR", "PYTHONUNBUFFERED": ""}
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    async with python(str(BOT), env=environment, limit=1 << 26, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        written, read = process.stdin, process.stdout

        async def carry_out(plans: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
            written.write(f"{json.dumps(plans)}\n".encode())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    line = await read.readline()
            except TimeoutError:
                process.kill()  # the next test would read this one's answer
                raise
            assert line, "pipecat's process has ended, in this test or in one before it"
            heard: list[list[dict[str, Any]]] = json.loads(line)
            return heard

        yield carry_out
        written.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0


def letters(texts: Sequence[str]) -> str:
    return "".join(char for text in texts for char in text if char.isalpha())


def audio_of(turn: dict[str, Any]) -> bytes:
    return base64.b64decode(turn["audio"])


async def test_bots_converse_barge_in_and_keep_to_themselves(bots: Bots) -> None:
    async with contextlib.AsyncExitStack() as stack:
        alone = [await stack.enter_async_context(serving(SCRIPT)) for _ in SERVICES]
        shared = [await stack.enter_async_context(serving(SCRIPT)) for _ in SERVICES]
        plans = [plan_of(service, served, TURNS) for service, served in zip(SERVICES, alone, strict=True)]
        for service, served in zip(SERVICES, shared, strict=True):
            plans += [plan_of(service, served, TURNS[:1])] * 2
        heard = await bots(plans)
        for served in alone:
            await served.until(lambda engine: engine.num_live == 0)
            assert len(served.engine.cancels) == 2, "both interruptions reached the engine"
    spoken = await native_turns([HELLO, LONG, MORE, LONG, LAST])
    both = set(await native_turns([HELLO, HELLO]))
    for number, service in enumerate(SERVICES):
        turns = heard[number]
        assert [turn["errors"] for turn in turns] == [[]] * len(TURNS), service
        for turn in (0, 2, 4):
            assert audio_of(turns[turn]) == spoken[turn], (service, turn)
        for turn in (1, 3):
            assert 0 < len(audio_of(turns[turn])) < len(spoken[turn]) // 2, (service, turn)
            assert spoken[turn].startswith(audio_of(turns[turn])), (service, turn)
        pair = heard[len(SERVICES) + 2 * number :][:2]
        assert {audio_of(turns[0]) for turns in pair} == both, service
        assert letters(turns[0]["words"]) == letters(HELLO), service


async def test_sentences_without_blanks_between_them_are_words_in_time(bots: Bots) -> None:
    """ElevenLabs' protocol tells characters."""
    text = "Hello there, and more. Your train leaves. 5 people came."
    async with serving() as served:
        ((turn,),) = await bots([plan_of("elevenlabs", served, [{"text": text}])])
    assert (turn["words"], turn["errors"]) == (text.split(), [])
    starts_s = [start_s - turn["starts_s"][0] for start_s in turn["starts_s"]]
    num_letters = [sum(map(str.isalnum, text[: match.start()])) for match in re.finditer(r"\S+", text)]
    assert starts_s == pytest.approx([0.06 * number for number in num_letters], abs=0.1), "as FakeEngine speaks"


async def test_audio_that_begins_late_is_heard(bots: Bots) -> None:
    """Pipecat takes a turn for ended after 3 s without audio, unless its service says otherwise."""
    async with serving(Script(first_chunk_delay_s=3.5)) as served:
        ((turn,),) = await bots([plan_of("voicegate", served, [{"text": HELLO}])])
    assert (audio_of(turn), turn["errors"]) == ((await native_turns([HELLO]))[0], [])
    assert letters(turn["words"]) == letters(HELLO)


async def test_words_after_a_pause_of_the_llm_have_the_time_at_which_they_are_heard(bots: Bots) -> None:
    """A bot that is interrupted after it would else remember what the pause left unsaid."""
    pause_s = 2.5  # HELLO is spoken in one
    async with serving() as served:
        turns = [{"text": HELLO, "continued": MORE, "pause_s": pause_s}]
        ((turn,),) = await bots([plan_of("voicegate", served, turns)])
    times_s = [start_s - turn["starts_s"][0] for start_s in turn["starts_s"]]
    num_before = sum(time_s < pause_s for time_s in times_s)
    assert times_s == sorted(times_s)
    assert (letters(turn["words"][:num_before]), letters(turn["words"][num_before:])) == (letters(HELLO), letters(MORE))


async def test_a_call_that_ends_while_the_llm_writes_is_spoken_to_the_end(bots: Bots) -> None:
    async with serving() as served:
        ((turn,),) = await bots([plan_of("voicegate", served, [{"text": HELLO, "interrupted": "by an EndFrame"}])])
        assert not served.engine.cancels
    assert (audio_of(turn), turn["errors"]) == ((await native_turns([HELLO]))[0], [])


async def test_a_piece_that_cannot_be_sent_is_told_and_the_rest_is_spoken(bots: Bots) -> None:
    """Half of a surrogate pair: LLMs that stream JSON may split one."""
    async with serving(contexts_per_socket=1) as served:
        turns = [{"text": "Hello \ud83d there."}, {"text": MORE}]
        ((first, second),) = await bots([plan_of("voicegate", served, turns)])
        num_requests = len(served.engine.requests)
    (error,) = second["errors"]
    assert "UTF-8" in error
    assert (letters(first["words"]), letters(second["words"])) == ("Hellothere", letters(MORE))
    assert num_requests == 2


async def test_a_turn_that_could_not_be_opened_fails_once(bots: Bots) -> None:
    """And not with each of its tokens, which would each wait for a server that does not answer."""
    async with serving() as served:
        tts = f'VoicegateTTSService(url="{served.url}", settings=VoicegateTTSService.Settings(voice="nobody"))'
        ((turn,),) = await bots([{"configuration": f"tts = {tts}", "turns": [{"text": HELLO}]}])
    assert ["unknown_voice" in error for error in turn["errors"]].count(True) == 1


async def test_a_call_that_ends_in_the_middle_of_speech_is_no_error(bots: Bots) -> None:
    async with serving(SCRIPT) as served:
        ((turn,),) = await bots(
            [plan_of("voicegate", served, [{"text": LONG, "interrupted": "by the end of the call"}])]
        )
        await served.until(lambda engine: engine.num_live == 0)
    assert turn["errors"] == []


def plan_of(service: str, served: Served, turns: Sequence[dict[str, str]]) -> dict[str, Any]:
    blocks = [
        *configurations("pipecat", urlsplit(served.url).netloc),
        f'tts = VoicegateTTSService(url="{served.url}")',
    ]
    return {"configuration": blocks[SERVICES.index(service)], "turns": list(turns)}
