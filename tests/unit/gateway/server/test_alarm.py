"""An alarm rings once, where it was set last."""

import asyncio

import pytest

from tests.support.virtual_time import run_virtually
from voicegate.gateway.server.alarm import Alarm

pytestmark = pytest.mark.unit


def test_it_rings_where_it_was_set_last() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        rung: list[float] = []
        alarm = Alarm()
        began_s = loop.time()

        def ring() -> None:
            rung.append(loop.time() - began_s)

        alarm.set(began_s + 1.0, ring)
        alarm.set(began_s + 3.0, ring)
        await asyncio.sleep(2.0)
        assert (rung, alarm.is_set) == ([], True)
        alarm.set(began_s + 2.5, ring)
        await asyncio.sleep(2.0)
        assert not alarm.is_set
        alarm.set(began_s + 5.0, ring)
        alarm.call_off()
        await asyncio.sleep(2.0)
        return rung

    assert run_virtually(main()) == pytest.approx([2.5])


def test_who_is_rung_may_set_it_again_for_the_same_moment() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + 1.0
        num_rung = 0

        def ring() -> None:
            nonlocal num_rung
            num_rung += 1
            alarm.set(due_s if num_rung < 3 else None, ring)

        alarm = Alarm()
        alarm.set(due_s, ring)
        await asyncio.sleep(2.0)
        return num_rung

    assert run_virtually(main()) == 3
