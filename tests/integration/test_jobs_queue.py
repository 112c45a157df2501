"""Gateways that share a queue of jobs through a real Redis: who makes what, and what becomes of it when one is away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.integration.test_jobs import (
    JOBS,
    NUM_PARTS,
    SECRETS,
    TEXT,
    added,
    asked,
    client_of,
    key_file,
    until,
    until_ended,
)
from tests.integration.wire_client import TIMEOUT_S, Served, connect_to, serving
from tests.support.redis_server import RedisServer
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.auth.key_file import add_key
from voicegate.gateway.auth.keyring import Key, digest_of
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.jobs import redis_ledger
from voicegate.gateway.server.run import running_gateway

STALLED = Script(faults={number: Fault(FaultKind.STALL) for number in range(100)})


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def two(
    redis: RedisServer, folder: Path, scripts: tuple[Script | None, Script | None] = (None, None), **settings: Any
) -> AsyncIterator[tuple[Served, Served]]:
    shared = {"jobs_queue": redis.url, "jobs_dir": folder / "jobs", **settings}
    async with serving(scripts[0], **shared) as one, serving(scripts[1], **shared) as other:
        yield one, other


async def test_what_one_takes_both_make_and_both_serve(tmp_path: Path, redis: RedisServer) -> None:
    slow = Script(real_time_factor=0.02, max_utterances=2, max_lead_ms=60_000)
    async with two(redis, tmp_path, (slow, slow)) as (one, other):
        async with client_of(one.url) as client, client_of(other.url) as second:
            job = await added(client, [TEXT] * 4)
            told = await until_ended(second, job)
            assert (told["state"], told["parts_done"]) == ("done", 4 * NUM_PARTS)
            whole = (await client.get(f"{JOBS}/{job}/audio")).content
            parts = [(await second.get(f"{JOBS}/{job}/audio?part={n}")).content for n in range(4 * NUM_PARTS)]
            assert whole == b"".join(parts)
            assert (await second.get(f"{JOBS}/{job}/audio")).content == whole
            assert (await second.get(f"{JOBS}/{job}/audio?input=3")).content == b"".join(parts[-NUM_PARTS:])
            assert [each["id"] for each in (await second.get(JOBS)).json()["jobs"]] == [job]
            assert (await second.delete(f"{JOBS}/{job}")).json() == {"id": job, "deleted": True}
            assert (await client.get(f"{JOBS}/{job}")).status_code == 404
        assert not (tmp_path / "jobs" / job).exists()
        made = [len(served.engine.requests) for served in (one, other)]
        assert (sum(made), min(made) > 0) == (4 * NUM_PARTS, True), "each part once"


async def test_limits_owners_and_cancels_hold_for_both(tmp_path: Path, redis: RedisServer) -> None:
    settings = {"api_keys_file": key_file(tmp_path), "jobs_per_key": 1, "max_jobs": 2}
    async with (
        two(redis, tmp_path, (STALLED, STALLED), **settings) as (one, other),
        client_of(one.url, "ann") as ann,
        client_of(other.url, "ann") as ann_again,
        client_of(other.url, "ben") as ben,
    ):
        job = await added(ann, "One.")
        assert (await ann_again.post(JOBS, json=asked("Two."))).status_code == 429
        assert (await ben.get(f"{JOBS}/{job}")).status_code == 404
        await added(ben, "Three.")
        await until_live(one, other, num_parts=2)
        assert (await ann_again.delete(f"{JOBS}/{job}")).json()["state"] == "cancelled"
        await until_live(one, other, num_parts=1)
        await added(ann, "Four.")


async def until_live(*served: Served, num_parts: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while sum(each.engine.num_live for each in served) != num_parts:  # noqa: ASYNC110 - on either
            await asyncio.sleep(0.02)


async def test_in_all_there_are_no_more_than_may_be(tmp_path: Path, redis: RedisServer) -> None:
    async with (
        two(redis, tmp_path, (STALLED, STALLED), max_jobs=3) as (one, other),
        client_of(one.url) as client,
        client_of(other.url) as second,
    ):
        posts = [each.post(JOBS, json=asked("A word.")) for each in (client, second) * 5]
        answers = await asyncio.gather(*posts)
    assert sorted(answer.status_code for answer in answers) == [202] * 3 + [503] * 7


async def test_a_job_expires_for_both(tmp_path: Path, redis: RedisServer) -> None:
    async with two(redis, tmp_path, jobs_keep_s=1) as (one, other), client_of(one.url) as client:
        job = await added(client, "One.")
        async with client_of(other.url) as second, asyncio.timeout(TIMEOUT_S):
            while (await second.get(f"{JOBS}/{job}")).status_code != 404:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def test_parts_of_a_gateway_that_ends_go_to_the_other(tmp_path: Path, redis: RedisServer) -> None:
    shared = {"jobs_queue": redis.url, "jobs_dir": tmp_path / "jobs"}
    faults = {number: Fault(FaultKind.STALL) for number in range(1, 10)}
    async with serving(Script(faults=faults), **shared) as one, client_of(one.url) as client:
        job = await added(client)
        await until(client, job, lambda told: told["parts_done"] == 1)
        await one.until(lambda engine: engine.num_live == NUM_PARTS - 1)
    async with serving(**shared) as other, client_of(other.url) as client:
        assert (await until_ended(client, job))["state"] == "done"
        assert len(other.engine.requests) == NUM_PARTS - 1, "the finished one is kept"


async def test_a_gateway_that_does_not_know_a_key_yet_leaves_its_jobs_alone(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = key_file(tmp_path)
    old_keys = tmp_path / "old_keys"
    add_key(old_keys, Key("ben", digest_of(SECRETS["ben"])))
    shared = {"jobs_queue": redis.url, "jobs_dir": tmp_path / "jobs"}
    async with serving(STALLED, **shared, api_keys_file=keys) as one, client_of(one.url, "ann") as ann:
        job = await added(ann, "One.")
    async with serving(**shared, api_keys_file=old_keys) as other, client_of(other.url, "ben") as ben:
        await until_ended(ben, await added(ben, "Two."))
        assert len(other.engine.requests) == 1
        monkeypatch.setattr("voicegate.gateway.server.jobs.jobs._KEY_GRACE_S", 0.0)  # and it was taken back
        async with serving(STALLED, **shared, api_keys_file=keys) as one, client_of(one.url, "ann") as ann:
            told = await until_ended(ann, job)
    assert (told["state"], told["error"]) == ("failed", "the key of this job was taken back")


# --- a queue that is away -----------------------------------------------------------------------------------


async def test_a_dead_redis_is_told_and_then_the_job_goes_on(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicegate.gateway.server.jobs.runner._PAUSE_S", 0.2)
    script = Script(real_time_factor=0.05, max_lead_ms=60_000)
    shared = {"jobs_queue": redis.url, "jobs_dir": tmp_path / "jobs"}
    async with serving(script, **shared) as served, client_of(served.url) as client:
        job = await added(client)
        await served.until(lambda engine: engine.num_live == NUM_PARTS)
        redis.kill()
        for answer in (await client.post(JOBS, json=asked()), await client.get(f"{JOBS}/{job}")):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
            assert answer.json()["error"]["message"] == "the queue of jobs does not answer", "and not where it is"
        async with connect_to(served.url) as live:
            await live.speak("a", "Hello there.")
            await live.until_done("a")
        await served.until(lambda engine: engine.num_live == 0)
        redis.start()
        assert (await until(client, job, lambda told: told.get("ended_at")))["state"] == "done"
        assert len(served.engine.requests) == NUM_PARTS + 1, "what was made meanwhile is kept: one more is the stream"


async def test_a_redis_that_hangs_hangs_nobody(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"jobs_queue": redis.url, "jobs_dir": tmp_path / "jobs"}
    async with serving(**shared) as served, client_of(served.url) as client:
        await until_ended(client, await added(client, "One."))
    monkeypatch.setattr(redis_ledger, "_TIMEOUT_S", 0.3)
    async with serving(**shared) as served, client_of(served.url) as client:
        redis.halt()
        answers = await asyncio.gather(*(client.post(JOBS, json=asked()) for _ in range(30)))
        assert {answer.status_code for answer in answers} == {503}
        async with connect_to(served.url) as live:
            await live.speak("a", "Hello there.")
            await live.until_done("a")
        redis.go_on()
        assert (await until(client, "", lambda told: "jobs" in told))["jobs"]


async def test_a_gateway_starts_without_its_queue(tmp_path: Path, redis: RedisServer) -> None:
    redis.kill()
    async with serving(jobs_queue=redis.url, jobs_dir=tmp_path / "jobs") as served, client_of(served.url) as client:
        assert (await client.post(JOBS, json=asked())).status_code == 503
        assert (await client.get("/readyz")).status_code == 200
        redis.start()
        await until(client, "", lambda told: "jobs" in told)
        assert (await until_ended(client, await added(client, "One.")))["state"] == "done"


async def test_a_redis_without_memory_takes_no_job_and_logs_alone_say_why(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis", options=("--maxmemory", "1kb", "--maxmemory-policy", "noeviction"))
    try:
        async with serving(jobs_queue=redis.url, jobs_dir=tmp_path / "jobs") as served, client_of(served.url) as client:
            with structlog.testing.capture_logs() as lines:
                answer = await client.post(JOBS, json=asked("Nobody logs this."))
            assert (answer.status_code, answer.json()["error"]["message"]) == (503, "the queue of jobs does not answer")
            assert ("maxmemory" in str(lines), "Nobody" in str(lines)) == (True, False)
    finally:
        redis.kill()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"jobs_queue": "redis://localhost:1"}, "jobs_dir is unset"),
        ({"jobs_queue": "http://localhost:1", "jobs_dir": Path("/tmp/x")}, "must begin with redis://"),
        ({"jobs_queue": "redis://:secret@localhost:1", "jobs_dir": Path("/tmp/x")}, "VOICEGATE_JOBS_QUEUE_PASSWORD"),
        ({"jobs_queue": "redis://a:1?password=secret", "jobs_dir": Path("/tmp/x")}, "VOICEGATE_JOBS_QUEUE_PASSWORD"),
        ({"jobs_queue": "redis://[", "jobs_dir": Path("/tmp/x")}, "jobs_queue is no address: Invalid IPv6"),
        ({"jobs_queue": "redis://a:b", "jobs_dir": Path("/tmp/x")}, "jobs_queue cannot be used: Port"),
        ({"jobs_queue": "redis://a?nonsense=1", "jobs_dir": Path("/tmp/x")}, "jobs_queue cannot be used: .*nonsense"),
    ],
)
async def test_an_address_that_cannot_be_used_ends_the_start(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(GatewayError, match=words) as refused:
        async with running_gateway(GatewayConfig(**settings), FakeEngine()):
            pass
    assert "secret" not in str(refused.value)


async def test_a_password_is_used(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis", options=("--requirepass", SECRETS["ann"]))
    shared = {"jobs_queue": redis.url, "jobs_dir": tmp_path / "jobs"}
    try:
        async with serving(**shared) as served, client_of(served.url) as client:
            assert (await client.post(JOBS, json=asked())).status_code == 503
        async with serving(**shared, jobs_queue_password=SECRETS["ann"]) as served, client_of(served.url) as client:
            assert (await until_ended(client, await added(client, "One.")))["state"] == "done"
    finally:
        redis.kill()
