"""A job over its server's end: a real process with the tiny model, and kill -9. Also the command line's jobs.

Several kills, and live streams beside: tests/integration/test_jobs_over_kills.py.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import numpy.typing as npt

from tests.integration.processes import python
from tests.support.patience import PATIENCE_S
from tests.support.patient_gateway import PATIENT
from tests.support.quick_model import quick_model
from tests.support.tiny_engine import tiny_engine
from voicegate.gateway.server.run import running_gateway

TEXTS = ["A stitch in time saves nine.", "All is not gold.", "It rains.", "Better late than never."]
# In steps of 16 bits. Other parts beside one in a batch change how its sums are rounded, and not what is heard.
TOLERANCE = 100


@contextlib.asynccontextmanager
async def server(folder: Path, model: Path) -> AsyncIterator[str]:
    words = ("serve", "--port", "0", "--jobs-dir", str(folder), "--log-format", "json", "--device", "cpu")
    words = (*words, "--max-utterances", "2", "--model-dir", str(model))
    pipes = {"stderr": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.DEVNULL}
    async with python("-m", "voicegate", *words, **pipes) as process:  # and kill -9
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE_S * 4):
            while not lines or lines[-1]["event"] != "ready":
                line = await process.stderr.readline()
                assert line, lines
                if line.startswith(b"{"):
                    lines.append(json.loads(line))
        (url,) = [line["url"] for line in lines if line["event"] == "listening"]
        yield url


async def jobs(*words: str, stdin: bytes = b"") -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voicegate", "jobs", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "VOICEGATE_API_KEY": ""},
    )
    async with asyncio.timeout(PATIENCE_S * 8):
        out, _ = await process.communicate(stdin)
    return process.returncode or 0, out.decode().strip()


async def add(url: str) -> str:
    body = {"input": TEXTS, "seed": 7, "response_format": "pcm"}
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        answer = await client.post(f"http://{urlsplit(url).netloc}/v1/audio/jobs", json=body)
    return str(answer.json()["id"])


async def until_parts(folder: Path, job: str, number: int) -> set[str]:
    """Files of finished parts."""
    async with asyncio.timeout(PATIENCE_S * 8):
        while True:
            found = {path.name for path in (folder / job).glob("*") if path.name.isdecimal()}
            if len(found) >= number:
                return found
            await asyncio.sleep(0.05)


async def audio_of(url: str, job: str, file: Path) -> npt.NDArray[np.int32]:
    status, line = await jobs("wait", job, "--url", url)
    assert (status, line.split()[1:3]) == (0, ["done", "100%"])
    status, _ = await jobs("get", job, "-o", str(file), "--url", url)
    assert status == 0
    return np.fromfile(file, "<i2").astype(np.int32)


async def test_a_job_goes_on_after_a_kill_and_sounds_the_same(tmp_path: Path) -> None:
    folder, model = tmp_path / "jobs", quick_model(tmp_path / "model")
    async with server(folder, model) as url:
        undisturbed = await audio_of(url, await add(url), tmp_path / "one.pcm")
        job = await add(url)
        before = await until_parts(folder, job, 1)
    written = {name: (folder / job / name).stat().st_mtime_ns for name in before}
    async with server(folder, model) as url:
        audio = await audio_of(url, job, tmp_path / "two.pcm")
        assert audio.shape == undisturbed.shape
        assert np.abs(audio - undisturbed).max() < TOLERANCE
        assert {name: (folder / job / name).stat().st_mtime_ns for name in written} == written, "none is made twice"
        status, second = await jobs("add", "-", "--format", "wav", "--url", url, stdin=b"One more.")
        assert (status, len(second)) == (0, len(job))
        await audio_of(url, second, tmp_path / "three.wav")
        status, listed = await jobs("list", "--url", url)
        assert (status, [line.split()[0] for line in listed.splitlines()[:2]]) == (0, [second, job])
        assert (await jobs("cancel", job, "--url", url))[0] == 0
        assert (await jobs("show", job, "--url", url))[0] == 1
    assert not (folder / job).exists()


async def test_parts_leave_clauses_of_the_engine_to_live_streams(tmp_path: Path) -> None:
    """A stream that found none free would wait for the end of a part's clause, behind other parts that wait."""
    gateway, engine = dataclasses.replace(PATIENT, jobs_dir=tmp_path, jobs_spare_bytes=0), tiny_engine()
    body = {"input": [" ".join(TEXTS[:3])] * 40, "response_format": "pcm"}
    most = 0
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(running_gateway(gateway, engine))
        address = f"http://{urlsplit(url).netloc}"
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=address, timeout=PATIENCE_S))
        job = (await client.post("/v1/audio/jobs", json=body)).json()
        async with asyncio.timeout(PATIENCE_S * 8):
            while (await client.get(f"/v1/audio/jobs/{job['id']}")).json()["parts_done"] < 3:
                gauges = engine.stats().gauges
                most = max(most, int(gauges["active_clauses"] + gauges["waiting_clauses"]))
                await asyncio.sleep(0.02)
    assert 0 < most < gauges["max_active_clauses"]
