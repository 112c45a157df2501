"""Some pages made into audio over two kills of the server, with a shared queue and without; tests/soak has 200."""

from pathlib import Path

from tests.integration.job_kills import (
    NUM_STREAMS,
    add,
    audio_of,
    gateway,
    over_two_kills,
    undisturbed,
    until_share,
)
from tests.support.patience import PATIENCE_S
from tests.support.redis_server import RedisServer

PAGES = 6
# Too slow to be done between two looks.
SLOW = {"real_time_factor": 0.2, "max_utterances": 4}


async def test_a_shared_job_over_two_kills_beside_live_streams(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis")
    try:
        beside = await over_two_kills(redis.url, tmp_path, num_pages=PAGES, lease_s=2.0, within_s=4 * PATIENCE_S)
    finally:
        redis.kill()
    assert beside.num_contexts >= NUM_STREAMS


async def test_a_job_of_one_server_over_two_kills(tmp_path: Path) -> None:
    expected = await undisturbed(tmp_path / "undisturbed", PAGES, 4 * PATIENCE_S)
    async with gateway(tmp_path / "jobs", lease_s=30.0, script=SLOW) as first:
        job = await add(first, PAGES)
        await until_share(first, job, 1 / 4, 4 * PATIENCE_S)
        await first.kill()
    async with gateway(tmp_path / "jobs", lease_s=30.0, script=SLOW) as second:
        await until_share(second, job, 1 / 2, 4 * PATIENCE_S)
        await second.kill()
    async with gateway(tmp_path / "jobs", lease_s=30.0, script=SLOW) as third:
        assert await audio_of(third, job, 4 * PATIENCE_S) == expected
