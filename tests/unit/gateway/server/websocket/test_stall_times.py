"""When a peer that takes nothing loses what: to the second, on a clock of the test's."""

import asyncio

import pytest

from tests.support.virtual_time import run_virtually
from tests.unit.gateway.server.served import serve
from tests.unit.gateway.server.websocket.test_bounded_socket import Peer
from voicegate.gateway.session.actions import Close
from voicegate.protocol.errors import CloseCode

STALL_S = 10.0
CLOSING_S = 2.0
GRAIN_S = 1e-6


@pytest.mark.parametrize("last_byte_taken_after_s", [0.0, 3.2, 9.9])
def test_ten_seconds_are_ten_seconds(last_byte_taken_after_s: float) -> None:
    async def main() -> tuple[Close, float, float]:
        """How it ends; when, and when the connection is cut, from the last byte taken on."""
        loop = asyncio.get_running_loop()
        peer = Peer(stall_s=STALL_S, is_heard=False)
        connection = (await serve(peer.socket)).connection
        running = asyncio.create_task(connection.run())
        await asyncio.sleep(0)
        peer.stop_reading()
        if last_byte_taken_after_s:
            await asyncio.sleep(last_byte_taken_after_s)
            peer.transport.raw_socket.num_acked_bytes += 1
        taken_s = loop.time()
        verdict = await asyncio.shield(connection.conversation.verdict)
        ended_s = loop.time() - taken_s
        await running
        assert peer.transport.is_aborted
        cut_s = loop.time() - taken_s
        peer.socket.connection_lost(None)
        return verdict, ended_s, cut_s

    verdict, ended_s, cut_s = run_virtually(main())
    assert verdict == Close(CloseCode.POLICY, "slow_consumer")
    assert 0.95 * STALL_S - GRAIN_S <= ended_s <= STALL_S + GRAIN_S
    assert cut_s <= STALL_S + CLOSING_S + GRAIN_S
