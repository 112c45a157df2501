"""Checks of what jobs need: their folder and its space, their queue and how it keeps what it is told."""

import os
import shutil
from collections.abc import Iterator

from redis import RedisError

from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.jobs.redis_ledger import connected
from voicegate.gateway.server.jobs.settings import JobSettings
from voicegate.gateway.server.starting import job_settings_of


def check_jobs(config: GatewayConfig) -> Iterator[Finding]:
    """Nothing where no jobs are taken."""
    try:
        settings = job_settings_of(config)
    except GatewayError as error:
        yield Finding(Level.FAIL, "jobs", str(error))
        return
    if settings is not None:
        yield _check_folder(settings)
        if settings.queue is not None:
            yield from _check_queue(settings)


def _check_folder(settings: JobSettings) -> Finding:
    folder = settings.folder
    while not folder.exists():  # it will be made
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return Finding(Level.FAIL, "jobs", f"{folder} is no folder that can be written to: choose another --jobs-dir")
    free_gib, spare_gib = (size / 2**30 for size in (shutil.disk_usage(folder).free, settings.spare_bytes))
    text = f"{settings.folder}: {free_gib:.1f} GiB free"
    if free_gib > spare_gib:
        return Finding(Level.OK, "jobs", text)
    return Finding(Level.WARN, "jobs", f"{text}, and jobs leave {spare_gib:.1f} (--jobs-spare-bytes): none is taken")


def _check_queue(settings: JobSettings) -> Iterator[Finding]:
    try:
        with connected(settings) as redis:
            told = redis.info("persistence") | redis.info("memory")
    except GatewayError as error:
        yield Finding(Level.FAIL, "jobs queue", str(error))
        return
    except RedisError as error:
        yield Finding(Level.FAIL, "jobs queue", f"{settings.queue} does not answer: {error}")
        return
    if not told.get("aof_enabled"):
        yield Finding(Level.WARN, "jobs queue", "a restart of it loses jobs: set its appendonly to yes")
    elif (policy := told.get("maxmemory_policy", "noeviction")) != "noeviction":
        yield Finding(Level.WARN, "jobs queue", f"when full it drops jobs ({policy}): set maxmemory-policy noeviction")
    else:
        yield Finding(Level.OK, "jobs queue", f"{settings.queue} answers, and keeps what it is told")
