"""The agents of the examples, in processes with the real packages: an LLM's stream, a real gateway, an interruption."""

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.stub_llm import StubLlm
from tests.integration.wire_client import native_turns, serving
from voicegate.engine.fake.engine import Script

pytestmark = pytest.mark.integration

PATIENCE_S = 90
# In real time, so that there is something to interrupt.
SCRIPT = Script(real_time_factor=1.0)
STORY, YES = "Once upon a time there was a word. " + "word " * 200, "Yes, of course."


async def run_example(module: str, packages: str, plan: dict[str, str]) -> dict[str, Any]:
    folder = Path(sys.prefix) / packages
    if not folder.is_dir():
        pytest.fail(f"no {packages} in {folder}: `make unit` puts it there")
    path = os.pathsep.join((str(folder), os.getcwd()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "LOGURU_LEVEL": "ERROR"},
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, _ = await process.communicate(json.dumps(plan).encode())
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    heard: dict[str, Any] = json.loads(out)
    return heard


@pytest.mark.parametrize("framework", ["pipecat", "livekit"])
async def test_a_bot_converses_and_lets_itself_be_interrupted(framework: str) -> None:
    with StubLlm([STORY, "and more"], [YES]).serving() as stub:
        stub.may_go_on.set()
        async with serving(SCRIPT) as served:
            plan = {"llm": stub.base_url, "gateway": urlsplit(served.url).netloc}
            told = await run_example(f"tests.integration.{framework}_example", framework, plan)
            await served.until(lambda engine: engine.num_live == 0)
            assert len(served.engine.cancels) == 1, "the interruption reached the engine"
            num_utterances = len(served.engine.requests)
        second = stub.conversations[1]
    story, yes = (base64.b64decode(audio) for audio in told["heard"])
    spoken = await native_turns([STORY, YES])
    assert 0 < len(story) < len(spoken[0]) // 2
    assert spoken[0].startswith(story)
    assert (num_utterances, yes) == (2, spoken[1])
    remembered = dict(second)["assistant"]
    assert 0 < len(remembered) < len(STORY), "the LLM is told what was heard of its answer"
    assert STORY.replace(" ", "").startswith(remembered.replace(" ", ""))
    assert second[-1] == ("user", "Stop!")
