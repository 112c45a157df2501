"""A pytest plugin: sockets' events late and in another order, timers late, threads that come when it suits worst.

Nothing here breaks a promise of asyncio's or threading's, so a test that fails under it relied on none: run by
`make disturbed`. A seed repeats the draws, not the machine's own order.
"""

import os
import random
import sys
import threading
import time
from asyncio import base_events, selector_events
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from tests.support.virtual_time import VirtualLoop

SEED: Final = int(os.environ.get("DISTURBANCE_SEED", "0")) or random.randrange(1, 10**6)
# Higher -> rarer orders, slower tests; one in three leaves most limits of time alone.
LATE_EVENTS: Final = 0.3
LATE_TIMERS: Final = 0.2
PAUSES: Final = 0.05
MAX_PAUSE_S: Final = 0.01
MAX_LATE_TIMER_S: Final = 0.03
SWITCH_INTERVAL_S: Final = 0.0005

_random = random.Random(SEED + os.getpid())


def pytest_configure() -> None:
    loop, selecting = base_events.BaseEventLoop, selector_events.BaseSelectorEventLoop
    _wrap(selecting, "_process_events", _some_later)
    _wrap(loop, "call_at", _when_later)
    for owner, name in (
        (loop, "call_soon_threadsafe"),
        (threading.Event, "set"),
        (threading.Condition, "notify"),
        (threading.Thread, "start"),
    ):
        _wrap(owner, name, _pausing)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def pytest_report_header() -> str:
    return f"disturbed: DISTURBANCE_SEED={SEED}"


def _some_later(process: Callable[..., None]) -> Callable[..., None]:
    """Leaves some events for later. They are still ready at the next look: selectors tell levels, not edges."""

    def process_some(loop: Any, events: list[Any]) -> None:
        own = loop._ssock  # by which threads wake the loop
        shuffled = _random.sample(events, len(events))
        process(loop, [event for event in shuffled if event[0].fileobj is own or _random.random() > LATE_EVENTS])
        _pause()

    return process_some


def _when_later(call_at: Callable[..., Any]) -> Callable[..., Any]:
    def call_later(loop: Any, when: float, *arguments: Any, **more: Any) -> Any:
        is_late = _random.random() < LATE_TIMERS and not isinstance(loop, VirtualLoop)  # whose times are exact
        late_s = _random.random() * MAX_LATE_TIMER_S if is_late else 0.0
        return call_at(loop, when + late_s, *arguments, **more)

    return call_later


def _pausing(method: Callable[..., Any]) -> Callable[..., Any]:
    def pausing(*arguments: Any, **more: Any) -> Any:
        _pause()
        result = method(*arguments, **more)
        _pause()
        return result

    return pausing


def _pause() -> None:
    if _random.random() < PAUSES:
        time.sleep(_random.random() * MAX_PAUSE_S)


def _wrap(owner: type, name: str, disturbed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(disturbed(original)))
