"""`voicegate serve` with all the processes there are, told to stop in the middle of an utterance as systemd tells it.

A front, an engine process, and its encoder processes.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.integration.raw_client import get
from tests.support.quick_model import quick_model
from voicegate.clients.python.client import connect
from voicegate.protocol.messages import Done

SETTINGS = {
    "VOICEGATE_PORT": "0",
    "VOICEGATE_GPUS": "cpu",
    "VOICEGATE_THREADS": "1",
    "VOICEGATE_ENCODER_PROCESSES": "2",
    "VOICEGATE_DRAIN_S": "100",
    "VOICEGATE_ENGINE_TIMEOUT_S": "60",  # a busy machine may not get to it for a while
}


async def test_sigterm_to_the_whole_group_lets_a_live_utterance_end_with_all_its_audio(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voicegate", "serve", "--log-level", "warning"),
        *("--model-dir", str(quick_model(tmp_path / "model"))),
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **SETTINGS},
        start_new_session=True,
    )
    assert process.stdout is not None
    async with asyncio.timeout(120):
        try:
            url = (await process.stdout.readline()).decode().split()[3].rstrip(",")
            (told,) = json.loads((await get(url, "/v1/capacity"))[2])["replicas"]
            assert told == {"name": "cpu", "ready": True, "utterances": 0, "room": told["room"]}
            async with connect(url) as gate:
                context = await gate.open(seed=3, lead_ms=60_000)
                await context.say("Good morning. ")
                audio = aiter(context)
                num_packets = len((await anext(audio)).packets)
                os.killpg(process.pid, signal.SIGTERM)
                await context.say("It rains.")
                await context.end()
                num_packets += sum([len(more.packets) async for more in audio])
            _, log = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert isinstance(context.result, Done)
    assert num_packets == context.result.packets
    assert (process.returncode, log) == (0, b"")
