"""The agents of the examples and LiveKit's plugins, with the real packages, in processes of their own."""

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.plugins import installed_plugin
from tests.integration.processes import python
from tests.integration.stub_llm import StubLlm
from tests.integration.wire_client import Served, native_turns, serving
from voicegate.engine.fake.engine import Script

PATIENCE_S = 90
# In real time, so that there is something to interrupt.
SCRIPT = Script(real_time_factor=1.0)
LONGEST_WORD = 5  # letters, of these
STORY, YES = "Once upon a time there was a word. " + "word " * 200, "Yes, of course."
GREETING = "Hello. What would you like to know?"


async def run(framework: str, module: str, plan: dict[str, object]) -> Any:
    """Runs an example. Returns its output."""
    folder = Path(sys.prefix) / framework
    if not folder.is_dir():
        pytest.fail(f"no {framework} in {folder}: `make unit` puts it there")
    path = os.pathsep.join((str(folder), str(installed_plugin(framework)), os.getcwd()))
    # Unbuffered, Python drops the rest of a long line whose writing a signal interrupts.
    environment = {**os.environ, "PYTHONPATH": path, "LOGURU_LEVEL": "ERROR", "PYTHONUNBUFFERED": ""}
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    async with python("-m", f"tests.integration.{module}", env=environment, **pipes) as process:
        out, _ = await process.communicate(json.dumps(plan).encode())
    assert process.returncode == 0
    return json.loads(out)


async def heard_of(framework: str, stub: StubLlm, served: Served) -> list[bytes]:
    """Heard audio of each answer of its example."""
    plan: dict[str, object] = {"llm": stub.base_url, "gateway": urlsplit(served.url).netloc}
    return [base64.b64decode(audio) for audio in await run(framework, f"{framework}_example", plan)]


async def test_the_pipecat_bot_converses_and_lets_itself_be_interrupted() -> None:
    with StubLlm([STORY, "and more"], [YES]).serving() as stub:
        async with serving(SCRIPT) as served:
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
                running = tasks.create_task(heard_of("pipecat", stub, served))
                await served.engine.until(lambda: bool(served.engine.cancels))  # while the LLM still writes
                stub.may_go_on.set()
            await check_audio(running.result(), [STORY, YES], served)
        second = stub.conversations[1]
    remembered = dict(second)["assistant"]
    assert 0 < len(remembered) < len(STORY), "the LLM is told what was heard of its answer"
    assert STORY.startswith(remembered)
    assert len(remembered.split()) >= 5
    assert second[-1] == ("user", "Stop!")


async def test_the_livekit_agent_converses_and_lets_itself_be_interrupted() -> None:
    """And greets."""
    with StubLlm([STORY, "and more"], [YES]).serving() as stub:
        stub.may_go_on.set()
        async with serving(SCRIPT) as served, asyncio.timeout(PATIENCE_S):
            heard = await heard_of("livekit", stub, served)
            await check_audio(heard, [GREETING, STORY, YES], served)
        second = stub.conversations[1]
    assert second[-1] == ("user", "Stop!")
    remembered = dict(second)["assistant"]
    assert STORY.startswith(remembered)
    assert len(remembered.split()) >= 4
    # A word that has begun was heard.
    assert abs(letters_in(heard[1]) - sum(map(str.isalnum, remembered))) <= LONGEST_WORD, "the words that were heard"


def letters_in(audio: bytes) -> float:
    """Words heard in it: FakeEngine takes 60 ms for each."""
    return len(audio) / 2 / 24_000 / 0.06


async def check_audio(heard: list[bytes], texts: list[str], served: Served) -> None:
    """The last but one was interrupted."""
    *whole, story, yes = heard
    *expected, spoken_story, spoken_yes = await native_turns(texts)
    for audio, spoken in zip([*whole, yes], [*expected, spoken_yes], strict=True):
        assert audio.startswith(spoken)
        assert not any(audio[len(spoken) :]), "LiveKit fills its last frame with silence"
    assert 0 < len(story) < len(spoken_story) // 2
    assert spoken_story.startswith(story)
    await served.until(lambda engine: engine.num_live == 0)
    assert (len(served.engine.requests), len(served.engine.cancels)) == (len(texts), 1)


async def test_livekits_voices_hear_what_a_native_client_hears() -> None:
    story = " ".join(f"This is the sentence with the number {number}." for number in range(60))
    # The last one ends with signs that are not said.
    texts = ["Hello there, and more of it.", story, "A second turn of speech. - -"]
    async with serving() as served, asyncio.timeout(PATIENCE_S):
        plan: dict[str, object] = {"gateway": urlsplit(served.url).netloc, "texts": texts}
        heard = await run("livekit", "livekit_voices", plan)
    assert heard.keys() == {"elevenlabs", "cartesia", "deepgram", "openai", "voicegate"}
    spoken = await native_turns(texts * len(heard))
    for number, (plugin, turns) in enumerate(heard.items()):
        for turn, told in enumerate(turns):
            audio = base64.b64decode(told["audio"])
            expected = spoken[number * len(texts) + turn]
            assert audio.startswith(expected), (plugin, turn, len(audio), len(expected))
            assert not any(audio[len(expected) :]), plugin
            starts_s = told["starts_s"]
            assert starts_s == sorted(starts_s), "from the beginning, and not from that of a message"
            if plugin in ("elevenlabs", "voicegate"):
                assert len(starts_s) >= len(texts[turn].replace("-", "").split())
                assert starts_s[-1] > len(expected) / 48_000 - 1
            if plugin == "voicegate":
                assert told["text"].rstrip() == texts[turn]


async def test_a_text_that_livekit_cannot_send_fails_its_stream_alone() -> None:
    """Half of a surrogate pair: LLMs that stream JSON may split one."""
    async with serving(contexts_per_socket=1) as served, asyncio.timeout(PATIENCE_S):
        texts = [["Hello ", "\ud83d", " there."], ["Hello ", "there."]]
        plan: dict[str, object] = {"gateway": urlsplit(served.url).netloc, "texts": texts}
        first, second = await run("livekit", "livekit_failures", plan)
        assert "UTF-8" in first["message"]
        assert not first["is_retryable"], "it would fail again"
        assert second is None
        await served.until(lambda engine: engine.num_live == 0)
