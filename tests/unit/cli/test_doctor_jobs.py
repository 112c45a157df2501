"""`voicegate doctor` looks at the folder of jobs, and at a real Redis."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_server import RedisServer
from voicegate.gateway.cli.checks.finding import Level
from voicegate.gateway.cli.checks.jobs import check_jobs
from voicegate.gateway.config import GatewayConfig


def found(**settings: Any) -> list[tuple[Level, str, str]]:
    return [(it.level, it.subject, it.text) for it in check_jobs(GatewayConfig(**settings))]


def test_without_jobs_nothing_is_told() -> None:
    assert found() == []


def test_the_folder(tmp_path: Path) -> None:
    ((level, _, text),) = found(jobs_dir=tmp_path / "not" / "yet", jobs_spare_bytes=0)
    assert (level, "GiB free" in text) == (Level.OK, True)
    assert list(tmp_path.iterdir()) == [], "nothing is made"
    ((level, _, text),) = found(jobs_dir=tmp_path, jobs_spare_bytes=1 << 60)
    assert (level, "--jobs-spare-bytes" in text) == (Level.WARN, True)
    (tmp_path / "file").touch()
    ((level, _, text),) = found(jobs_dir=tmp_path / "file")
    assert (level, "choose another --jobs-dir" in text) == (Level.FAIL, True)


def test_settings_that_end_a_start() -> None:
    ((level, _, text),) = found(jobs_queue="redis://localhost")
    assert (level, "jobs_dir" in text) == (Level.FAIL, True)


@pytest.mark.parametrize(
    ("options", "level", "words"),
    [
        ((), Level.OK, "keeps what it is told"),
        (("--appendonly", "no"), Level.WARN, "appendonly"),
        (("--maxmemory-policy", "allkeys-lru"), Level.WARN, "noeviction"),
        (("--requirepass", "of-no-use-to-you"), Level.FAIL, "does not answer"),
    ],
)
def test_the_queue(tmp_path: Path, options: tuple[str, ...], level: Level, words: str) -> None:
    redis = RedisServer(tmp_path / "redis", options=options)
    try:
        _, (told, _, text) = found(jobs_dir=tmp_path, jobs_spare_bytes=0, jobs_queue=redis.url)
        assert (told, words in text) == (level, True), text
    finally:
        redis.kill()
    _, (told, _, text) = found(jobs_dir=tmp_path, jobs_spare_bytes=0, jobs_queue=redis.url)
    assert (told, "does not answer" in text) == (Level.FAIL, True)
