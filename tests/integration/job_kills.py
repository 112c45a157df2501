"""A job while its server is killed, and live streams beside it; of any length."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.integration.processes import python
from tests.integration.wire_client import connect_to
from tests.support.patience import PATIENCE_S
from voicegate.protocol import messages as wire

JOBS = "/v1/audio/jobs"
NUM_STREAMS = 20
PAGE = " ".join(f"This is sentence {number} of a page that somebody wants to hear." for number in range(30)) + "\n\n"
# A page is some 15 s of speech then.
MS_PER_CHARACTER = 10
# Live streams have so much ahead that a machine with other work starves none of them.
LEAD_MS = 10_000
OPUS_MS = 20


@dataclass
class Gateway:
    process: asyncio.subprocess.Process
    url: str

    @property
    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://{urlsplit(self.url).netloc}", timeout=PATIENCE_S)

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@contextlib.asynccontextmanager
async def gateway(folder: Path, *, lease_s: float, script: dict[str, Any], **settings: Any) -> AsyncIterator[Gateway]:
    settings = {"jobs_dir": str(folder), **settings}
    script = {"ms_per_character": MS_PER_CHARACTER, "max_lead_ms": 60_000, **script}
    words = ("-m", "tests.support.job_gateway", json.dumps(settings), json.dumps(script), str(lease_s))
    async with python(*words, stderr=asyncio.subprocess.PIPE) as process:
        assert process.stderr is not None
        url, event = "", ""
        async with asyncio.timeout(PATIENCE_S):
            while event != "ready":
                line = await process.stderr.readline()
                assert line, "it has ended"
                told = json.loads(line)
                event, url = told["event"], told.get("url", url)
        reading = asyncio.create_task(process.stderr.read())  # a full pipe would hold it up
        try:
            yield Gateway(process, url)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


# --- the job ------------------------------------------------------------------------------------------------


async def add(served: Gateway, num_pages: int) -> str:
    async with served.client as client:
        answer = await client.post(JOBS, json={"input": PAGE * num_pages, "response_format": "pcm"})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


async def until(served: Gateway, job: str, is_so: Callable[[Any], bool], within_s: float) -> Any:
    async with asyncio.timeout(within_s), served.client as client:
        while not is_so(told := (await client.get(f"{JOBS}/{job}")).json()):  # noqa: ASYNC110 - clients poll
            await asyncio.sleep(0.05)
    return told


async def until_share(served: Gateway, job: str, share: float, within_s: float) -> Any:
    """So much of it is made, and not all."""
    told = await until(served, job, lambda told: told["parts_done"] >= share * told["parts"], within_s)
    assert told["state"] == "running", told
    return told


async def audio_of(served: Gateway, job: str, within_s: float) -> bytes:
    told = await until(served, job, lambda told: told["ended_at"] is not None, within_s)
    assert (told["state"], told["parts_done"]) == ("done", told["parts"]), told
    async with served.client as client:
        return (await client.get(f"{JOBS}/{job}/audio")).content


async def undisturbed(folder: Path, num_pages: int, within_s: float) -> bytes:
    """The audio of a job that nobody disturbed."""
    async with gateway(folder, lease_s=30.0, script={}) as served:
        return await audio_of(served, await add(served, num_pages), within_s)


# --- live streams beside it ---------------------------------------------------------------------------------


@dataclass
class Streams:
    least_lead_s: float = float("inf")  # audio that was there and not played yet, when more of it came
    num_contexts: int = 0
    started: list[asyncio.Event] = field(default_factory=lambda: [asyncio.Event() for _ in range(NUM_STREAMS)])

    async def speak(self, number: int, url: str) -> None:
        """One context after another, until it is cancelled. Fails with an error of the server's."""
        async with connect_to(url) as client:
            while True:
                name = f"{number}-{self.num_contexts}"
                self.num_contexts += 1
                await client.speak(name, PAGE * 2, pace=wire.Pace(lead_ms=LEAD_MS))
                await client.until(wire.Opened, name)
                await self._listen(client, number)
                client.heard.clear()

    async def _listen(self, client: Any, number: int) -> None:
        first_s, heard_s = None, 0.0
        while not isinstance(message := await client.receive(), wire.Done):
            assert not isinstance(message, wire.Error), message
            if not (packets := getattr(message, "packets", ())):
                continue
            now_s = time.monotonic()
            if first_s is None:
                first_s = now_s
            else:
                self.least_lead_s = min(self.least_lead_s, heard_s - (now_s - first_s))
            heard_s += len(packets) * OPUS_MS / 1000
            if heard_s >= LEAD_MS / 2000:
                self.started[number].set()


@contextlib.asynccontextmanager
async def streams(url: str) -> AsyncIterator[Streams]:
    """NUM_STREAMS of them; each begins when the one before it has some lead."""
    beside = Streams()
    async with asyncio.TaskGroup() as tasks:
        speaking = []
        for number, started in enumerate(beside.started):
            speaking.append(tasks.create_task(beside.speak(number, url)))
            await started.wait()
        yield beside
        for task in speaking:
            assert not task.done(), "it goes on"
            task.cancel()


async def over_two_kills(redis_url: str, folder: Path, *, num_pages: int, lease_s: float, within_s: float) -> Streams:
    """With two gateways: the one that makes most of the job is killed twice, the other has the streams."""
    expected = await undisturbed(folder / "undisturbed", num_pages, within_s)
    shared: dict[str, Any] = {"jobs_queue": redis_url, "lease_s": lease_s}
    maker = {**shared, "script": {"real_time_factor": 0.2, "max_utterances": 4 if num_pages < 20 else 32}}
    script = {"real_time_factor": 0.05, "max_utterances": NUM_STREAMS + 8}
    async with gateway(folder / "jobs", **shared, script=script) as other, streams(other.url) as beside:
        async with gateway(folder / "jobs", **maker) as first:
            job = await add(first, num_pages)
            await until_share(other, job, 1 / 4, within_s)
            await first.kill()
        async with gateway(folder / "jobs", **maker) as second:
            await until_share(other, job, 1 / 2, within_s)
            await second.kill()
        async with gateway(folder / "jobs", **maker) as third:
            assert await audio_of(other, job, within_s) == expected, "nothing is lost, nothing said twice"
            assert await audio_of(third, job, within_s) == expected
    return beside
