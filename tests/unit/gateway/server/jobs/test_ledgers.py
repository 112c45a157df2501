"""SQLite's and Redis' ledger keep the same promises; and what only claims of several gateways can come to."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer
from voicegate.gateway.server.jobs import redis_ledger
from voicegate.gateway.server.jobs.cutting import Part
from voicegate.gateway.server.jobs.files import JobFiles, PartAudio
from voicegate.gateway.server.jobs.ledger import JobRow, Ledger, State
from voicegate.gateway.server.jobs.redis_ledger import RedisLedger
from voicegate.gateway.server.jobs.settings import JobSettings, JobsFull
from voicegate.gateway.server.jobs.sqlite_ledger import SqliteLedger
from voicegate.gateway.server.jobs.store import JobStore

PARTS = [Part(0, "Zero."), Part(0, "One. Twö."), Part(1, "Three.")]
AUDIO = PartAudio([b"abc", b"d"], 1920, 40)


def job(name: str = "a", created_s: float = 100.0) -> JobRow:
    return JobRow(name, "ann", b'{"voice":"hum"}', State.QUEUED, created_s, 312, 2, len(PARTS), 20)


def settings(folder: Path, queue: str | None = None) -> JobSettings:
    return JobSettings(
        folder,
        queue,
        None,
        max_jobs=5,
        per_key=3,
        text_bytes=1000,
        keep_s=60,
        spare_bytes=0,
        webhooks=(),
        webhook_secret=b"",
    )


@pytest.fixture(params=["sqlite", "redis"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        ledger: Ledger = SqliteLedger(tmp_path / "jobs.sqlite", settings(tmp_path))
        yield ledger
        ledger.close()
        return
    redis = request.getfixturevalue("redis")
    ledger = RedisLedger(settings(tmp_path, redis.url))
    yield ledger
    ledger.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


def test_a_job_from_its_beginning_to_its_end(ledger: Ledger) -> None:
    ledger.add(job(), PARTS)
    assert (ledger.get("a"), ledger.get("b")) == (job(), None)
    claims = ledger.claim(ledger.unended(), 9)
    assert [(claim.number, claim.attempt, claim.is_whole) for claim in claims] == [(n, 1, False) for n in range(3)]
    assert ledger.claim(ledger.unended(), 9) == []
    assert [row.state for row in ledger.unended()] == [State.RUNNING]
    assert [ledger.text_of(claim) for claim in claims] == [part.text for part in PARTS]
    for claim in (claims[2], claims[0], claims[1]):
        assert ledger.finish(claim, AUDIO, 7)
        assert ledger.finish(claim, AUDIO, 7), "an answer may get lost"
    assert (row := ledger.get("a")) is not None
    assert (row.parts_done, row.characters_done, row.audio_ms) == (3, 21, 120)
    (whole,) = ledger.claim(ledger.unended(), 9)
    assert whole.is_whole
    assert len(ledger.parts("a", None, None)) == 3
    assert len(ledger.parts("a", None, 0)) == 2
    assert [part and part.end_pts_48k for part in ledger.parts("a", 2, None)] == [1920]
    assert ledger.parts("a", 9, None) == []
    assert ledger.end("a", State.DONE, None, 200.0)
    assert not ledger.end("a", State.FAILED, "too late", 300.0)
    assert (row := ledger.get("a")) is not None
    assert (row.state, row.error, row.ended_s) == (State.DONE, None, 200.0)
    assert (ledger.unended(), ledger.of_owner("ann", 9)) == ([], [row])
    assert (ledger.ended_before(200.0), ledger.ended_before(201.0)) == ([], ["a"])
    ledger.remove("a")
    assert (ledger.get("a"), ledger.of_owner("ann", 9), ledger.parts("a", None, None)) == (None, [], [])


def test_jobs_take_turns(ledger: Ledger) -> None:
    for name in ("a", "b"):
        ledger.add(job(name), PARTS)
    claims = ledger.claim(ledger.unended(), 4)
    assert [(claim.job.id, claim.number) for claim in claims] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_what_was_not_made_is_claimed_again(ledger: Ledger) -> None:
    ledger.add(job(), PARTS)
    first, second = ledger.claim(ledger.unended(), 2)
    ledger.release(second, counts=True)
    ledger.release(first, counts=False)
    assert [(claim.number, claim.attempt) for claim in ledger.claim(ledger.unended(), 2)] == [(0, 1), (1, 2)]


def test_a_job_that_has_ended_is_made_no_more(ledger: Ledger) -> None:
    ledger.add(job(), PARTS)
    ledger.add(job("b"), PARTS)
    jobs = ledger.unended()
    one, other = ledger.claim(jobs, 2)
    assert ledger.end("a", State.FAILED, "no voice", 200.0)
    assert ledger.renew([one, other]) == [False, True]
    assert not ledger.finish(one, AUDIO, 5)
    assert {claim.job.id for claim in ledger.claim(jobs, 9)} == {"b"}
    ledger.remove("b")
    assert ledger.renew([other]) == [False]
    assert not ledger.finish(other, AUDIO, 5)
    assert ledger.claim(jobs, 9) == []
    assert (row := ledger.get("a")) is not None
    assert (row.state, row.error, row.parts_done) == (State.FAILED, "no voice", 0)


def test_of_a_key_and_in_all_there_are_as_many_as_may_be(ledger: Ledger) -> None:
    for number in range(3):
        ledger.add(job(str(number)), PARTS)
    with pytest.raises(JobsFull, match="3 of your jobs"):
        ledger.add(job("x"), PARTS)
    ledger.check_room("ben")
    assert ledger.end("0", State.CANCELLED, None, 1.0)
    ledger.add(job("x"), PARTS)
    assert ledger.get("x") is not None


def test_no_look_for_work_reads_all_jobs_that_are_kept(tmp_path: Path) -> None:
    ledger, asked = SqliteLedger(tmp_path / "jobs.sqlite", settings(tmp_path)), []
    ledger._db.set_trace_callback(asked.append)
    ledger.add(job(), PARTS)
    ledger.renew(ledger.claim(ledger.unended(), 1))
    ledger.due_webhook([1.0])
    ledger.ended_before(1.0)
    ledger.of_owner("ann", 9)
    ledger._db.set_trace_callback(None)
    for query in [query for query in asked if query.startswith(("SELECT", "UPDATE"))]:
        plan = [row[3] for row in ledger._db.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert not [step for step in plan if step.startswith("SCAN") and "INDEX unended" not in step], (query, plan)
    ledger.close()


def test_a_part_that_is_released_after_its_job_was_removed_leaves_nothing(tmp_path: Path, redis: RedisServer) -> None:
    ledger = RedisLedger(settings(tmp_path, redis.url))
    ledger.add(job(), PARTS)
    claims = ledger.claim(ledger.unended(), 9)
    ledger.end("a", State.CANCELLED, None, 1.0)
    ledger.remove("a")
    for claim in claims:
        ledger.release(claim, counts=False)
    with redis_ledger.connected(settings(tmp_path, redis.url)) as asked:
        assert asked.keys() == []
    ledger.close()


def test_a_job_that_redis_has_lost_holds_up_no_other(tmp_path: Path, redis: RedisServer) -> None:
    known, ledger = (RedisLedger(settings(tmp_path, redis.url)) for _ in range(2))
    for name in "ab":
        known.add(job(name), PARTS)
    (claim, *_) = known.claim(known.unended(), 1)
    with redis_ledger.connected(settings(tmp_path, redis.url)) as asked:
        asked.delete("voicegate:jobs:job:a")  # as an eviction does
    known.finish(claim, AUDIO, 5)
    assert [row.id for row in ledger.unended()] == ["b"]
    assert [row.id for row in ledger.of_owner("ann", 9)] == ["b"]
    assert ledger.get("a") is None
    for each in (known, ledger):
        each.close()


def test_two_gateways_that_finish_one_part_leave_one_audio(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_ledger, "LEASE_S", 0.05)
    stores = [
        JobStore(RedisLedger(settings(tmp_path, redis.url)), JobFiles(tmp_path / "jobs", is_shared=True))
        for _ in range(2)
    ]
    one, other = stores
    one.ledger.add(job(), PARTS)
    (late, *_) = one.ledger.claim(one.ledger.unended(), 1)
    time.sleep(0.1)  # the lease, by Redis' clock
    again = {claim.number: claim for claim in other.ledger.claim(other.ledger.unended(), 3)}
    assert again[0].attempt == 2
    assert other.finish_part(again[0], AUDIO, 5)
    assert not one.finish_part(late, PartAudio([b"other"], 960, 20), 5)
    files = one.parts("a", 0)
    assert files is not None
    assert [(file.packets(), file.end_pts_48k) for file in files] == [(AUDIO.packets, AUDIO.end_pts_48k)]
    assert len(list((tmp_path / "jobs" / "a").iterdir())) == 1, "the other is taken away"
    assert (row := one.ledger.get("a")) is not None
    assert (row.parts_done, row.audio_ms) == (1, 40)
    assert other.ledger.renew([again[0], again[1]]) == [False, True]
    for store in stores:
        store.close()
