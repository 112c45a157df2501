"""deploy/ray under the real Ray Serve on this machine: two replicas of the tiny model, in processes of their own."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from voicegate.protocol.messages import STREAM_PATH

pytestmark = [
    pytest.mark.soak,
]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 400  # Ray starts a dozen processes


async def test_replicas_speak_through_serves_proxy() -> None:
    folder = Path(sys.prefix) / "ray"
    if not folder.is_dir():
        pytest.fail(f"no ray in {folder}: `make soak` puts it there")
    path = os.pathsep.join((str(ROOT / "deploy/ray"), str(folder), str(ROOT)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.soak.ray_serve_example"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"},
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode == 0, log.decode()[-4000:]
    heard = json.loads(out.splitlines()[-1])
    assert heard["replicas"] == {"RUNNING": 2}
    for spoken in (heard["alone"], *heard["together"]):
        assert len(spoken["packets"]) == spoken["told"] > 10
        assert spoken["resume_seconds"] == 0, "Serve cannot send anybody home"
    first, again = heard["together"][0], heard["together"][3]
    assert first["packets"] == again["packets"] == heard["alone"]["packets"], "whichever replica it was"
    assert heard["capacity"]["accepts"] is True
    assert heard["wav"] == "RIFF"
    assert STREAM_PATH in heard["refused"] or "403" in heard["refused"]
