"""Turns of readers, where many have much to read."""

import asyncio

import pytest

from tests.unit.gateway.server.websocket.test_bounded_socket import turns
from voicegate.gateway.server.http.connection import Turns


class Reader:
    def __init__(self, num_pieces: int) -> None:
        self.num_left = num_pieces

    def read(self, _over_s: float) -> bool:
        self.num_left -= 1
        return self.num_left > 0


async def test_all_together_have_one_turn_of_a_loop_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.connection._TURN_S", 0.0)
    shared, readers = Turns(), [Reader(3) for _ in range(4)]
    for reader in readers:
        shared.join(reader.read)
    for num_read in range(1, 13):
        await turns(1)
        assert sum(3 - reader.num_left for reader in readers) == num_read
        assert max(reader.num_left for reader in readers) - min(reader.num_left for reader in readers) <= 1
    await turns(2)
    assert [reader.num_left for reader in readers] == [0] * 4


async def test_who_fails_does_not_keep_others_from_their_turns() -> None:
    def fail(_over_s: float) -> bool:
        raise ValueError

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    shared, reader = Turns(), Reader(3)
    shared.join(fail)
    shared.join(reader.read)
    await turns(5)
    assert (reader.num_left, len(told)) == (0, 1)
