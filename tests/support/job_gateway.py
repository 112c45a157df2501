"""A gateway as a process, whose FakeEngine hums each part of a job at the pitch of its number, whoever makes it.

So two ways to make a job can be compared sample by sample.
`python -m tests.support.job_gateway SETTINGS SCRIPT LEASE_S`
"""

import json
import sys
from pathlib import Path

from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.interface import UtteranceRequest
from voicegate.gateway.config import from_environment
from voicegate.gateway.logs import configure_logs
from voicegate.gateway.server.jobs import redis_ledger
from voicegate.gateway.server.run import run_gateway


class ByPart(FakeEngine):
    def submit(self, request: UtteranceRequest) -> None:
        words = request.utterance_id.split("-")
        self._num_submits = int(words[2]) if words[0] == "job" else 0
        super().submit(request)


if __name__ == "__main__":
    configure_logs("info", "json")
    redis_ledger.LEASE_S = float(sys.argv[3])
    settings = {"port": 0, "jobs_spare_bytes": 0, **json.loads(sys.argv[1])}
    config = from_environment({}, {**settings, "jobs_dir": Path(settings["jobs_dir"])})
    sys.exit(run_gateway(config, ByPart(Script(**json.loads(sys.argv[2])))))
