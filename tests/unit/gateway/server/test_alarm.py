"""An alarm rings once, where it was set last."""

import asyncio

from tests.support.virtual_time import run_virtually
from voicegate.gateway.server.alarm import Alarm

HOUR_S = 3600.0  # beside which it does not matter how late a timer is


def test_it_rings_where_it_was_set_last() -> None:
    async def main() -> None:
        began_s = asyncio.get_running_loop().time()
        first, second, third = (asyncio.Event() for _ in range(3))
        alarm = Alarm()
        alarm.set(began_s + 1 * HOUR_S, first.set)
        alarm.set(began_s + 9 * HOUR_S, second.set)
        await asyncio.sleep(2 * HOUR_S)
        assert alarm.is_set
        alarm.set(began_s + 4 * HOUR_S, third.set)
        await third.wait()
        assert asyncio.get_running_loop().time() >= began_s + 4 * HOUR_S
        assert not alarm.is_set
        alarm.set(began_s + 6 * HOUR_S, first.set)
        alarm.call_off()
        await asyncio.sleep(9 * HOUR_S)
        assert not first.is_set()
        assert not second.is_set()

    run_virtually(main())


def test_who_is_rung_may_set_it_again_for_the_same_moment() -> None:
    async def main() -> None:
        due_s = asyncio.get_running_loop().time() + 1.0
        alarm, again = Alarm(), asyncio.Event()
        alarm.set(due_s, lambda: alarm.set(due_s, again.set))
        await again.wait()

    run_virtually(main())
