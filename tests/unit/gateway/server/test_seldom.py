"""Log lines that clients could cause at will: few, and none lost without a count."""

import asyncio

from structlog.testing import capture_logs

from tests.support.virtual_time import run_virtually
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.seldom import SeldomLog


def test_the_next_line_tells_how_many_were_left_out() -> None:
    async def main() -> None:
        seldom = SeldomLog(get_logger("gateway.test"))
        for n in range(5):
            seldom.warning("a socket is refused", status=503 + n)
            seldom.warning("a request is refused")
        await asyncio.sleep(10.0)
        seldom.warning("a socket is refused", status=429)
        await asyncio.sleep(10.0)
        seldom.warning("a socket is refused", status=429)

    with capture_logs() as lines:
        run_virtually(main())
    sockets = [(line["status"], line["left_out"]) for line in lines if line["event"] == "a socket is refused"]
    assert sockets == [(503, 0), (429, 4), (429, 0)]
