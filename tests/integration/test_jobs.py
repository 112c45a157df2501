"""Jobs over real sockets: what is made of them, who sees them, and that live streams go first."""

import asyncio
import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration.wire_client import TIMEOUT_S, connect_to, serving
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import EngineStats
from voicegate.gateway.auth.key_file import add_key, remove_key
from voicegate.gateway.auth.keyring import Key, digest_of
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.openapi import document
from voicegate.gateway.server.jobs.files import JobFiles, write_safely
from voicegate.gateway.server.jobs.sqlite_ledger import SqliteLedger
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

SENTENCE = "It was a bright cold day in April, and the clocks were striking thirteen. "
TEXT = "\n\n".join([SENTENCE * 13] * 2)
NUM_PARTS = 4
JOBS = "/v1/audio/jobs"
SECRETS = {"ann": "ann-has-this-secret", "ben": "and-ben-has-this-one"}


def client_of(url: str, owner: str | None = None) -> httpx.AsyncClient:
    headers = {} if owner is None else {"Authorization": f"Bearer {SECRETS[owner]}"}
    return httpx.AsyncClient(base_url=f"http://{urlsplit(url).netloc}", headers=headers, timeout=TIMEOUT_S)


def asked(text: Any = TEXT, **fields: Any) -> dict[str, Any]:
    return {"input": text, "response_format": "pcm", **fields}


async def added(client: httpx.AsyncClient, text: Any = TEXT, **fields: Any) -> str:
    answer = await client.post(JOBS, json=asked(text, **fields))
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"{JOBS}/{answer.json()['id']}"
    return str(answer.json()["id"])


async def until(client: httpx.AsyncClient, job: str, is_so: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        while not is_so(told := (await client.get(f"{JOBS}/{job}")).json()):  # noqa: ASYNC110 - clients poll
            await asyncio.sleep(0.02)
    return told


async def until_ended(client: httpx.AsyncClient, job: str) -> Any:
    return await until(client, job, lambda told: told["ended_at"] is not None)


# --- what is made -----------------------------------------------------------------------------------------


async def test_a_long_text_becomes_one_file_of_its_parts(tmp_path: Path) -> None:
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client)
        told = await until_ended(client, job)
        assert (told["state"], told["error"]) == ("done", None)
        assert set(told) == set(document()["components"]["schemas"]["Job"]["properties"])
        assert told["parts"] == told["parts_done"] == NUM_PARTS
        assert told["characters"] == told["characters_done"] == len(TEXT)
        assert told["expires_at"] > told["ended_at"] >= told["created_at"]
        whole = await client.get(f"{JOBS}/{job}/audio")
        parts = [await client.get(f"{JOBS}/{job}/audio?part={number}") for number in range(NUM_PARTS)]
        assert whole.headers["content-type"] == "audio/pcm"
        assert whole.content == b"".join(part.content for part in parts)
        assert len(whole.content) == round(told["seconds"] * 48_000)
        some = await client.get(f"{JOBS}/{job}/audio", headers={"Range": "bytes=1000-1999"})
        assert (some.status_code, some.content) == (206, whole.content[1000:2000])
        assert (await client.get(f"{JOBS}/{job}/audio?part={NUM_PARTS}")).status_code == 404
        assert (await client.get(f"{JOBS}/{job}/audio?part=x")).status_code == 400


async def test_a_list_is_spoken_text_by_text(tmp_path: Path) -> None:
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client, ["One.", TEXT, "Three."])
        told = await until_ended(client, job)
        assert (told["inputs"], told["parts"]) == (3, NUM_PARTS + 2)
        texts = [(await client.get(f"{JOBS}/{job}/audio?input={number}")).content for number in range(3)]
        whole = (await client.get(f"{JOBS}/{job}/audio")).content
        assert whole == b"".join(texts)
        assert all(texts)


@pytest.mark.parametrize(("name", "head"), [("mp3", b"ID3"), ("opus", b"OggS"), ("wav", b"RIFF"), ("flac", b"fLaC")])
async def test_in_the_format_that_is_asked_for(tmp_path: Path, name: str, head: bytes) -> None:
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client, response_format=name)
        told = await until_ended(client, job)
        path = tmp_path / f"audio.{name}"
        path.write_bytes((await client.get(f"{JOBS}/{job}/audio")).content)
    assert path.read_bytes()[:4].startswith(head) or name == "mp3"
    assert seconds_of(path) == pytest.approx(told["seconds"], abs=0.2)


def seconds_of(path: Path) -> float:
    import av

    with av.open(path) as file:
        return sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))


# --- who sees them ----------------------------------------------------------------------------------------


async def test_only_the_key_that_made_a_job_sees_it(tmp_path: Path) -> None:
    keys = key_file(tmp_path)
    async with serving(jobs_dir=tmp_path / "jobs", api_keys_file=keys) as served:
        async with client_of(served.url, "ann") as ann, client_of(served.url, "ben") as ben:
            job = await added(ann)
            await until_ended(ann, job)
            assert [told["id"] for told in (await ann.get(JOBS)).json()["jobs"]] == [job]
            assert (await ben.get(JOBS)).json() == {"jobs": []}
            for answer in (
                await ben.get(f"{JOBS}/{job}"),
                await ben.get(f"{JOBS}/{job}/audio"),
                await ben.delete(f"{JOBS}/{job}"),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
            assert (await ann.delete(f"{JOBS}/{job}")).json() == {"id": job, "deleted": True}
            assert (await ann.get(f"{JOBS}/{job}")).status_code == 404
        async with client_of(served.url) as stranger:
            assert (await stranger.get(JOBS)).status_code == 401


def key_file(folder: Path) -> Path:
    path = folder / "keys"
    for name, secret in SECRETS.items():
        add_key(path, Key(name, digest_of(secret)))
    return path


async def test_a_key_that_was_taken_back_has_no_jobs_made(tmp_path: Path) -> None:
    keys, jobs = key_file(tmp_path), tmp_path / "jobs"
    stalled = Script(faults={number: Fault(FaultKind.STALL) for number in range(10)})
    async with serving(stalled, jobs_dir=jobs, api_keys_file=keys) as served, client_of(served.url, "ann") as ann:
        job = await added(ann)
        await until(ann, job, lambda told: told["state"] == "running")
    remove_key(keys, "ann")
    async with serving(jobs_dir=jobs, api_keys_file=keys) as served, client_of(served.url, "ben") as ben:
        other = await added(ben)
        assert (await until_ended(ben, other))["state"] == "done"
        assert len(served.engine.requests) == NUM_PARTS, "none of the other job's"


async def test_without_a_folder_there_are_none() -> None:
    async with serving() as served, client_of(served.url) as client:
        answer = await client.post(JOBS, json=asked())
    assert (answer.status_code, "--jobs-dir" in answer.json()["error"]["message"]) == (501, True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"webhook": "http://example.com"}, "--jobs-webhooks"),
        ({"stream_format": "sse"}, "a job makes files"),
        ({"ref_audio": "UklGRg=="}, "takes no recording"),
        ({"text": ["a", " "]}, "input 1 has nothing to say"),
        ({"text": "```\ncode\n```"}, "nothing to say"),
        ({"text": "x" * 3000}, "a job takes 2500"),
        ({"text": 3}, "input"),
        ({"response_format": "midi"}, "midi"),
        ({"seed": -1}, "seed"),
        ({"else": "x" * 65536}, "the fields beside input"),
    ],
)
async def test_what_cannot_be_done_is_refused_at_once(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    async with serving(jobs_dir=tmp_path, jobs_text_bytes=2500) as served, client_of(served.url) as client:
        answer = await client.post(JOBS, json=asked(**fields))
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


async def test_a_body_that_json_readers_disagree_about_is_no_fault_of_the_server(tmp_path: Path) -> None:
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        for unknown in (rb'"\ud800"', b"9" * 400, b"1e999", b"[" * 300 + b"]" * 300):
            answer = await client.post(JOBS, content=b'{"input": "One.", "unknown": %s}' % unknown)
            assert answer.status_code in (202, 400), unknown


# --- live streams go first --------------------------------------------------------------------------------


async def test_live_streams_find_a_reserve_and_then_take_places_from_parts(tmp_path: Path) -> None:
    stalled = {number: Fault(FaultKind.STALL, after_ms=100) for number in range(100)}
    script = Script(max_utterances=4, faults=stalled)
    async with serving(script, jobs_dir=tmp_path, waiting_s=TIMEOUT_S) as served, client_of(served.url) as client:
        await added(client)
        await served.until(lambda engine: engine.num_live == 3)
        assert served.engine.room == 1, "which is the reserve"
        assert (await client.get("/v1/capacity")).json()["room"] == 4, "a balancer may send live streams"
        async with connect_to(served.url) as live:
            for name in ("a", "b", "c"):
                await live.speak(name, "Hello there.")
                await live.until(wire.Opened, name)
                while not live.heard[name][-1].audio:
                    await live.receive()
        assert len(served.engine.cancels) >= 2, "parts made way"


async def test_to_the_engine_a_part_is_background_work_and_a_live_stream_is_not(tmp_path: Path) -> None:
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        await until_ended(client, await added(client, "Hello there, and so on."))
        await client.post("/v1/audio/speech", json={"input": "Hello."})
        assert [request.is_background for request in served.engine.requests] == [True, False]


class OfClauses(FakeEngine):
    """An engine that holds few clauses, and among whose places many are of those who wait: a GPU of 24 GB."""

    @property
    def room(self) -> int:
        return max(80 + 32 - self.num_placed, 0)

    def stats(self) -> EngineStats:
        return EngineStats(gauges={"max_active_clauses": 80, "active_clauses": self.num_placed, "waiting_clauses": 0})


async def test_parts_fill_a_device_and_leave_clauses_to_live_streams(tmp_path: Path) -> None:
    stalled = {number: Fault(FaultKind.STALL, after_ms=100) for number in range(100)}
    engine = OfClauses(Script(max_utterances=1024, faults=stalled))
    config = GatewayConfig(port=0, jobs_dir=tmp_path, jobs_spare_bytes=0)
    async with running_gateway(config, engine) as url, client_of(url) as client, asyncio.timeout(TIMEOUT_S):
        await added(client, ["Hello there."] * 100)
        await engine.until(lambda: engine.num_live == 11)
        await asyncio.sleep(0.3)  # some looks later
        assert engine.num_live == 11, "a seventh of all clauses"
        async with connect_to(url) as live:
            for number in range(62):
                await live.speak(str(number), "Hello there.")
            # Not all 62 may be there when 70 are.
            await engine.until(lambda: len(engine.cancels) >= 3 and engine.num_live == 62 + 8)
            assert len(engine.cancels) == 3, "an eighth of all clauses is free again"


class OfOneClause(FakeEngine):
    """An engine with room for one clause. An utterance's next one waits for it before the first has ended."""

    def stats(self) -> EngineStats:
        num_placed = self.num_placed
        return EngineStats(
            gauges={"max_active_clauses": 1, "active_clauses": min(num_placed, 1), "waiting_clauses": num_placed}
        )


async def test_a_part_whose_own_clause_waits_is_stopped_for_live_streams_alone(tmp_path: Path) -> None:
    stalled = Fault(FaultKind.STALL, after_ms=100)
    engine = OfOneClause(Script(faults={0: stalled, 1: stalled}))
    config = GatewayConfig(port=0, jobs_dir=tmp_path, jobs_spare_bytes=0)
    async with running_gateway(config, engine) as url, client_of(url) as client:
        job = await added(client, "Hello there.")
        await engine.until(lambda: engine.num_live == 1)
        await asyncio.sleep(0.3)  # some looks later
        assert not engine.cancels
        async with connect_to(url) as live:
            await live.speak("a", "Hello there.")
            async with asyncio.timeout(TIMEOUT_S):
                await engine.until(lambda: bool(engine.cancels))
            await live.send(wire.Cancel("a"))
            await live.until(wire.Cancelled, "a")
        assert (await until_ended(client, job))["state"] == "done"


async def test_live_streams_are_encoded_while_files_of_jobs_take_all_other_threads(tmp_path: Path) -> None:
    loop, is_over = asyncio.get_running_loop(), threading.Event()
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        loop.set_default_executor(ThreadPoolExecutor(1))
        joining = loop.run_in_executor(None, is_over.wait)
        try:
            fields = {"input": "Hello there.", "voice": "hum", "response_format": "mp3"}
            assert len((await client.post("/v1/audio/speech", json=fields)).content) > 1000
            async with connect_to(served.url) as live:
                await live.speak("a", "Hello there.")
                assert (await live.until_done("a")).packets
        finally:
            is_over.set()
            await joining


async def test_files_are_joined_one_at_a_time_and_sizes_read_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing: list[int] = []
    loops_thread = threading.get_ident()

    def write(path: Path, content: Iterable[bytes]) -> None:
        writing.append(len(writing) + 1)
        time.sleep(0.05)
        write_safely(path, content)
        assert writing.pop() == 1

    def stat(path: Path, **how: Any) -> os.stat_result:
        assert not (path.is_relative_to(tmp_path) and threading.get_ident() == loops_thread), path
        return os.stat(path, **how)

    monkeypatch.setattr("voicegate.gateway.server.jobs.runner.write_safely", write)
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        monkeypatch.setattr(Path, "stat", stat)
        jobs = [await added(client, "One.") for _ in range(6)]
        assert [(await until_ended(client, job))["state"] for job in jobs] == ["done"] * 6
        monkeypatch.undo()


async def test_a_job_whose_audio_is_gone_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.jobs.runner._PAUSE_S", TIMEOUT_S)
    script = Script(faults={1: Fault(FaultKind.STALL)})
    async with serving(script, jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client)
        await until(client, job, lambda told: told["parts_done"] == NUM_PARTS - 1)
        shutil.rmtree(tmp_path / job)
        served.engine.cancel(served.engine.requests[1].utterance_id)
        told = await until_ended(client, job)
        assert (told["state"], "one folder for all gateways" in told["error"]) == ("failed", True)
        assert (await until_ended(client, await added(client, "One.")))["state"] == "done"


async def test_audio_that_is_gone_is_not_found(tmp_path: Path) -> None:
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client, "One.")
        await until_ended(client, job)
        shutil.rmtree(tmp_path / job)
        for query in ("", "?part=0", "?input=0"):
            answer = await client.get(f"{JOBS}/{job}/audio{query}")
            assert (answer.status_code, "not there any more" in answer.json()["error"]["message"]) == (404, True)


async def test_one_bad_job_fails_alone(tmp_path: Path) -> None:
    failing = {number: Fault(FaultKind.FAIL) for number in range(5)}
    async with serving(Script(faults=failing), jobs_dir=tmp_path) as served, client_of(served.url) as client:
        bad = await added(client, "Short.")
        told = await until_ended(client, bad)
        assert told["state"] == "failed"
        assert told["error"].startswith("part 0: ")
        assert (await client.get(f"{JOBS}/{bad}/audio")).status_code == 409
        assert (await until_ended(client, await added(client)))["state"] == "done"


async def test_a_part_that_failed_once_is_made_again(tmp_path: Path) -> None:
    script = Script(faults={0: Fault(FaultKind.FAIL)})
    async with serving(script, jobs_dir=tmp_path) as served, client_of(served.url) as client:
        told = await until_ended(client, await added(client))
        assert (told["state"], len(served.engine.requests)) == ("done", NUM_PARTS + 1)


async def test_a_part_that_ends_its_server_each_time_fails_its_job(tmp_path: Path) -> None:
    stalled = Script(faults={number: Fault(FaultKind.STALL) for number in range(10)})
    async with serving(stalled, jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client, "Short.")
        await until(client, job, lambda told: told["state"] == "running")
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:  # as five kills leave it
        database.execute("UPDATE parts SET attempts = 5")
    database.close()
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        told = await until_ended(client, job)
        assert (told["state"], told["error"]) == ("failed", "part 0: each time that it was made the server ended")
        assert not served.engine.requests


async def test_a_job_can_be_cancelled(tmp_path: Path) -> None:
    script = Script(faults={number: Fault(FaultKind.STALL) for number in range(1, 10)})
    async with serving(script, jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client)
        await until(client, job, lambda told: told["parts_done"] == 1)
        told = (await client.delete(f"{JOBS}/{job}")).json()
        assert (told["state"], told["parts_done"]) == ("cancelled", 1)
        await served.until(lambda engine: engine.num_live == 0)
        done = [(await client.get(f"{JOBS}/{job}/audio?part={number}")).status_code for number in range(NUM_PARTS)]
        assert sorted(done) == [200, 409, 409, 409], "what is done stays until it expires"


# --- limits -----------------------------------------------------------------------------------------------


async def test_limits_of_a_key_and_of_the_server(tmp_path: Path) -> None:
    keys = key_file(tmp_path)
    script = Script(faults={number: Fault(FaultKind.STALL) for number in range(100)})
    settings = {"jobs_dir": tmp_path / "jobs", "api_keys_file": keys, "jobs_per_key": 1, "max_jobs": 2}
    async with (
        serving(script, **settings) as served,
        client_of(served.url, "ann") as ann,
        client_of(served.url, "ben") as ben,
    ):
        job = await added(ann, "One.")
        answer = await ann.post(JOBS, json=asked("Two."))
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        await added(ben, "Two.")
        await ann.delete(f"{JOBS}/{job}")
        await added(ann, "Three.")
    settings |= {"jobs_per_key": 9}
    async with serving(script, **settings) as served, client_of(served.url, "ben") as ben:
        answer = await ben.post(JOBS, json=asked("Four."))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")


async def test_a_full_disk_refuses_jobs_and_holds_them_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicegate.gateway.server.jobs.runner._PAUSE_S", 0.2)
    monkeypatch.setattr("voicegate.gateway.server.jobs.runner._MAX_RUNNING", 1)
    script = Script(faults={0: Fault(FaultKind.STALL)})
    async with serving(script, jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client)
        await served.until(lambda engine: engine.num_live == 1)
        real = shutil.disk_usage
        monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=0))
        answer = await client.post(JOBS, json=asked())
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "no_space")
        served.engine.cancel(served.engine.requests[0].utterance_id)
        async with connect_to(served.url) as live:
            await live.speak("a", "Hello there.")
            await live.until_done("a")
        assert (await client.get(f"{JOBS}/{job}")).json()["parts_done"] == 0
        monkeypatch.setattr(shutil, "disk_usage", real)
        assert (await until_ended(client, job))["state"] == "done"


async def test_a_disk_that_is_full_for_the_database_too_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says so itself; a queue that does not answer is another trouble."""
    add = SqliteLedger.add

    def add_to_full(ledger: SqliteLedger, *arguments: Any) -> None:
        (num_pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
        ledger._db.execute(f"PRAGMA max_page_count = {num_pages}")
        add(ledger, *arguments)

    monkeypatch.setattr(SqliteLedger, "add", add_to_full)
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        answer = await client.post(JOBS, json=asked(SENTENCE * 1000))
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "no_space")
        async with connect_to(served.url) as live:
            await live.speak("a", "Hello there.")
            await live.until_done("a")


async def test_a_part_of_a_cancelled_job_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold its audio and a place among parts."""
    monkeypatch.setattr("voicegate.gateway.server.jobs.runner._PAUSE_S", 0.05)
    monkeypatch.setattr("voicegate.gateway.server.jobs.runner._MAX_RUNNING", 1)
    write, num_tries = JobFiles.write, 0

    def write_in_vain(*arguments: Any) -> None:
        nonlocal num_tries
        num_tries += 1
        if arguments[1] == first:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(JobFiles, "write", write_in_vain)
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        first = await added(client)
        async with asyncio.timeout(TIMEOUT_S):
            while num_tries < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        second = await added(client)
        await client.delete(f"{JOBS}/{first}")
        assert (await until_ended(client, second))["state"] == "done"


async def test_an_ended_job_expires(tmp_path: Path) -> None:
    async with serving(jobs_dir=tmp_path, jobs_keep_s=1) as served, client_of(served.url) as client:
        job = await added(client, "One.")
        async with asyncio.timeout(TIMEOUT_S):
            while (await client.get(f"{JOBS}/{job}")).status_code != 404:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert not (tmp_path / job).exists()


async def test_while_jobs_expire_requests_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed, remove = [], JobFiles.remove

    def slowly(files: JobFiles, job_id: str) -> None:
        time.sleep(0.2)
        remove(files, job_id)
        removed.append(job_id)

    monkeypatch.setattr(JobFiles, "remove", slowly)
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        for _ in range(20):
            await until_ended(client, await added(client, "One."))
    async with serving(jobs_dir=tmp_path, jobs_keep_s=1) as served, client_of(served.url) as client:
        async with asyncio.timeout(TIMEOUT_S):
            while not removed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await client.get(JOBS)
        assert len(removed) < 20


async def test_two_servers_share_no_folder(tmp_path: Path) -> None:
    async with serving(jobs_dir=tmp_path):
        with pytest.raises(GatewayError, match="in use by another server"):
            async with running_gateway(GatewayConfig(jobs_dir=tmp_path), FakeEngine()):
                pass


# --- a server that ends -----------------------------------------------------------------------------------


class _Seen(NamedTuple):
    state: str
    parts_done: int


async def test_jobs_outlive_the_server(tmp_path: Path) -> None:
    script = Script(faults={number: Fault(FaultKind.STALL) for number in range(1, 10)})
    async with serving(script, jobs_dir=tmp_path) as served, client_of(served.url) as client:
        job = await added(client)
        await until(client, job, lambda told: told["parts_done"] == 1)
    async with serving(jobs_dir=tmp_path) as served, client_of(served.url) as client:
        told = await until_ended(client, job)
        assert _Seen(told["state"], told["parts_done"]) == _Seen("done", NUM_PARTS)
        assert len(served.engine.requests) == NUM_PARTS - 1, "nothing is said twice"
