"""Webhooks of jobs: a real receiver that checks signatures with the library of Standard Webhooks, and bad receivers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from tests.integration.test_jobs import JOBS, added, asked, client_of, until_ended
from tests.integration.wire_client import TIMEOUT_S, connect_to, serving
from tests.support.redis_server import RedisServer
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.jobs.webhooks import is_allowed, post
from voicegate.gateway.server.run import running_gateway

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Receiver:
    """Answers in turn, the last answer from then on; None: not at all."""

    answers: list[bytes | None]
    url: str = ""
    came: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        self.came.append((head[0], headers, await reader.readexactly(int(headers["content-length"]))))
        answer = self.answers[min(len(self.came), len(self.answers)) - 1]
        if answer is None:
            await reader.read()  # until the other end is tired of it
        else:
            writer.write(answer)
        writer.close()

    async def until(self, is_so: Callable[["Receiver"], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so(self):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


OK = b"HTTP/1.1 204 No Content\r\n\r\n"
FAULT = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"


@contextlib.asynccontextmanager
async def receiving(*answers: bytes | None) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(answers))
    server = await asyncio.start_server(receiver.take, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        server.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.jobs.webhooks.DELAYS_S", (0.1,) * 5)
    monkeypatch.setattr("voicegate.gateway.server.jobs.jobs._LEDGER_S", 0.05)


def settings_for(receiver: Receiver, folder: Path) -> dict[str, Any]:
    return {"jobs_dir": folder / "jobs", "jobs_webhooks": f"{receiver.url}/hooks", "jobs_webhook_secret": SECRET}


async def test_the_end_of_a_job_is_told_once_and_signed(tmp_path: Path, soon: None) -> None:
    async with receiving(OK) as receiver:
        async with serving(**settings_for(receiver, tmp_path)) as served, client_of(served.url) as client:
            job = await added(client, "One.", webhook=f"{receiver.url}/hooks/mine?a=b")
            told = await until_ended(client, job)
            await receiver.until(lambda it: bool(it.came))
            await until_ended(client, await added(client, "Two.", webhook=f"{receiver.url}/hooks"))
            await receiver.until(lambda it: len(it.came) == 2)
        ((line, headers, body), _) = receiver.came
        assert line == "POST /hooks/mine?a=b HTTP/1.1"
        assert (headers["webhook-id"], headers["content-type"]) == (job, "application/json")
        assert Webhook(SECRET).verify(body, headers) == told


async def test_a_job_that_failed_is_told(tmp_path: Path, soon: None) -> None:
    script = Script(faults={number: Fault(FaultKind.FAIL) for number in range(5)})
    async with receiving(OK) as receiver:
        async with serving(script, **settings_for(receiver, tmp_path)) as served, client_of(served.url) as client:
            await until_ended(client, await added(client, "One.", webhook=f"{receiver.url}/hooks"))
            await receiver.until(lambda it: bool(it.came))
        assert b'"state":"failed"' in receiver.came[0][2]


async def test_a_job_that_was_cancelled_is_told(tmp_path: Path, soon: None) -> None:
    script = Script(faults={0: Fault(FaultKind.STALL)})
    async with receiving(OK) as receiver:
        async with serving(script, **settings_for(receiver, tmp_path)) as served, client_of(served.url) as client:
            job = await added(client, "One.", webhook=f"{receiver.url}/hooks")
            assert not receiver.came
            await client.delete(f"{JOBS}/{job}")
            await receiver.until(lambda it: bool(it.came))
        assert b'"state":"cancelled"' in receiver.came[0][2]


@pytest.mark.parametrize("bad", [FAULT, b"no HTTP\r\n\r\n", b"", b"HTTP/1.1 302 F\r\nLocation: /else\r\n\r\n", None])
async def test_it_is_told_again_where_it_was_not_taken(
    tmp_path: Path, soon: None, bad: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bad is None:  # else a busy machine would not take the third answer in time
        monkeypatch.setattr("voicegate.gateway.server.jobs.webhooks._TIMEOUT_S", 0.3)
    async with receiving(bad, bad, OK) as receiver:
        async with serving(**settings_for(receiver, tmp_path)) as served, client_of(served.url) as client:
            await until_ended(client, await added(client, "One.", webhook=f"{receiver.url}/hooks"))
            async with connect_to(served.url) as live:
                await live.speak("a", "Hello there.")
                await live.until_done("a")
            await receiver.until(lambda it: len(it.came) >= 3)
        assert {line for line, _, _ in receiver.came} == {"POST /hooks HTTP/1.1"}, "no redirect is followed"
        assert len({headers["webhook-id"] for _, headers, _ in receiver.came}) == 1


async def test_it_is_given_up_at_last(tmp_path: Path, soon: None) -> None:
    async with receiving(FAULT) as receiver:
        async with serving(**settings_for(receiver, tmp_path)) as served, client_of(served.url) as client:
            await until_ended(client, await added(client, "One.", webhook=f"{receiver.url}/hooks"))
            await receiver.until(lambda it: len(it.came) == 5)
            await until_ended(client, await added(client, "Two.", webhook=f"{receiver.url}/hooks"))
            await receiver.until(lambda it: len(it.came) == 10)
        assert len({headers["webhook-id"] for _, headers, _ in receiver.came[:5]}) == 1


async def test_attempts_outlive_the_server(tmp_path: Path, soon: None) -> None:
    async with receiving(FAULT, OK) as receiver:
        settings = settings_for(receiver, tmp_path)
        async with serving(**settings) as served, client_of(served.url) as client:
            job = await added(client, "One.", webhook=f"{receiver.url}/hooks")
            await receiver.until(lambda it: bool(it.came))
        async with serving(**settings):
            await receiver.until(lambda it: len(it.came) == 2)
        assert [headers["webhook-id"] for _, headers, _ in receiver.came] == [job, job]


async def test_one_of_several_gateways_sends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.jobs.jobs._LEDGER_S", 0.02)
    redis = RedisServer(tmp_path / "redis")
    try:
        async with receiving(OK) as receiver:
            settings = {**settings_for(receiver, tmp_path), "jobs_queue": redis.url}
            async with serving(**settings) as served, serving(**settings), serving(**settings):
                async with client_of(served.url) as client:
                    hook = f"{receiver.url}/hooks"
                    jobs = [await added(client, f"Number {number}.", webhook=hook) for number in range(10)]
                    for job in jobs:
                        await until_ended(client, job)
                await receiver.until(lambda it: len(it.came) >= 10)
            assert sorted(headers["webhook-id"] for _, headers, _ in receiver.came) == sorted(jobs)
    finally:
        redis.kill()


async def test_an_address_that_is_allowed_no_more_is_told_nothing(tmp_path: Path, soon: None) -> None:
    stalled = Script(faults={0: Fault(FaultKind.STALL)})
    async with receiving(OK) as receiver:
        settings = settings_for(receiver, tmp_path)
        async with serving(stalled, **settings) as served, client_of(served.url) as client:
            job = await added(client, "One.", webhook=f"{receiver.url}/hooks/a")
        settings["jobs_webhooks"] = f"{receiver.url}/hooks/b"
        async with serving(**settings) as served, client_of(served.url) as client:
            await until_ended(client, job)
            await until_ended(client, await added(client, "Two.", webhook=f"{receiver.url}/hooks/b"))
            await receiver.until(lambda it: bool(it.came))
        assert [line for line, _, _ in receiver.came] == ["POST /hooks/b HTTP/1.1"]


async def test_a_receiver_that_never_comes_to_its_answer_is_left() -> None:
    async with receiving(b"HTTP/1.1 100 Continue\r\n\r\n" * 101 + OK) as receiver:
        with pytest.raises(OSError, match="its answer does not begin"):
            await post(receiver.url, b"{}", {})
    async with receiving(b"HTTP/1.1 100 Continue\r\n\r\n" + OK) as receiver:
        assert await post(receiver.url, b"{}", {}) == 204


# --- what is allowed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "is_so"),
    [
        ("https://a.example/hooks", True),
        ("https://a.example:443/hooks/x?y=z", True),
        ("https://A.example/hooks/", True),
        ("https://a.example/hooks-of-others", False),
        ("https://a.example/", False),
        ("https://a.example/hooks/../admin", False),
        ("https://a.example/hooks/%2e%2E/admin", False),
        ("https://a.example/hooks/%252e%252e/admin", False),
        ("https://a.example/hooks/..%2fadmin", False),
        ("https://a.example/hooks/..;/admin", False),
        ("https://a.example/hooks/%2e.%3bx=y/admin", False),
        ("https://a.example/hooks/a;b", True),
        ("https://a.example/hooks\\..\\admin", False),
        ("https://a.example/hooks/%5c..%5cadmin", False),
        ("http://a.example/hooks", False),
        ("https://a.example:8443/hooks", False),
        ("https://a.example.evil/hooks", False),
        ("https://a.example@evil/hooks", False),
        ("https://user:pw@a.example/hooks", False),
        ("https://a.example/hooks\r\nX: y", False),
        ("https://a.example/hooks x", False),
        ("https://a.example/hooks#x", False),
        ("https://[::1/hooks", False),
        ("https://a.example:x/hooks", False),
        ("//a.example/hooks", False),
        ("https://a.example/hooks/" + "x" * 2048, False),
        ("", False),
    ],
)
def test_only_what_is_below_an_allowed_address(url: str, is_so: bool) -> None:
    assert is_allowed(url, ["https://a.example/hooks"]) is is_so
    assert not is_allowed(url, [])


async def test_another_address_is_refused(tmp_path: Path) -> None:
    async with receiving(OK) as receiver:
        async with serving(**settings_for(receiver, tmp_path)) as served, client_of(served.url) as client:
            answer: httpx.Response = await client.post(JOBS, json=asked(webhook=f"{receiver.url}/other"))
        assert (answer.status_code, "--jobs-webhooks" in answer.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"jobs_webhooks": "https://a.example"}, "VOICEGATE_JOBS_WEBHOOK_SECRET"),
        ({"jobs_webhooks": "https://a.example", "jobs_webhook_secret": "whsec_c2hvcnQ="}, "openssl rand -base64 32"),
        ({"jobs_webhooks": "a.example", "jobs_webhook_secret": SECRET}, "must be an address"),
    ],
)
async def test_settings_that_cannot_be_meant_end_the_start(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(GatewayError, match=words):
        async with running_gateway(GatewayConfig(jobs_dir=tmp_path, **settings), FakeEngine()):
            pass
