"""A book of 200 pages made into audio over two kills of the server, while 20 live streams go on."""

from pathlib import Path

import pytest

from tests.integration.job_kills import NUM_STREAMS, over_two_kills
from tests.soak.keeping import Keep
from tests.support.redis_server import RedisServer


@pytest.mark.soak
async def test_200_pages_over_two_kills_beside_live_streams(tmp_path: Path, keep: Keep) -> None:
    redis = RedisServer(tmp_path / "redis")
    try:
        beside = await over_two_kills(redis.url, tmp_path, num_pages=200, lease_s=30.0, within_s=1800.0)
    finally:
        redis.kill()
    keep(streams=NUM_STREAMS, contexts=beside.num_contexts, least_lead_s=round(beside.least_lead_s, 3))
    assert beside.least_lead_s > 0.0, "no listener waited"
