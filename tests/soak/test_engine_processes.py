"""Random calls over real engine processes that are killed and stopped at random: everybody is told of one end."""

import asyncio
import os
import random
import signal
from collections import Counter

import pytest

from tests.contract.listener import Listener
from tests.integration.test_engine_processes import pids, site
from tests.soak.keeping import Keep
from tests.support.polling import until
from voicegate.engine.interface import EngineStopped, ListenerReport, Overloaded, UtteranceId
from voicegate.engine.process import keeper
from voicegate.engine.process.front import RoutingEngine

pytestmark = pytest.mark.soak

SECONDS = 60.0
SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV)


class Crowd:
    def __init__(self, engine: RoutingEngine, seed: int) -> None:
        self.engine = engine
        self.listener = Listener(engine, timeout_s=60.0)
        self.utterances: list[UtteranceId] = []
        self.num_refused = 0
        self._random = random.Random(seed)

    async def call(self) -> None:
        """Something, to somebody."""
        draw, engine = self._random.random(), self.engine
        if draw < 0.4 or not self.utterances:
            text = "one two three " * self._random.randint(1, 20)
            try:
                name, ends = f"u{len(self.utterances)}-{self.num_refused}", self._random.random() < 0.5
                self.utterances.append(self.listener.submit(name, text=text, end=ends))
            except Overloaded:
                self.num_refused += 1
            return
        somebody = self._random.choice(self.utterances)
        if draw < 0.6:
            engine.push_text(somebody, "more words ")
        elif draw < 0.7:
            engine.end_text(somebody)
        elif draw < 0.8:
            engine.cancel(somebody, self._random.choice([None, 0, 100]))
        elif draw < 0.9:
            engine.note_listener(somebody, ListenerReport(is_playing=self._random.random() < 0.7))
        elif draw < 0.997:
            engine.flush_text(somebody, "f")
        elif alive := pids(engine):
            os.kill(self._random.choice(alive), self._random.choice(SIGNALS))

    async def listen(self) -> None:
        try:
            while True:
                await self.listener.next()
        except EngineStopped:
            pass


async def test_whatever_is_killed_everybody_is_told_of_one_end(monkeypatch: pytest.MonkeyPatch, keep: Keep) -> None:
    monkeypatch.setattr(keeper, "_LOOK_S", 0.2)
    engine = RoutingEngine([site(f"place:{number}") for number in range(3)], patience_s=2.0)
    await engine.start()
    crowd = Crowd(engine, seed=1)
    listening = asyncio.create_task(crowd.listen())
    until_s = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < until_s:
        await crowd.call()
        await asyncio.sleep(0.005)
    for utterance in crowd.utterances:
        engine.cancel(utterance)
    await until(lambda: not engine._live, timeout_s=60.0)
    counters = engine.stats().counters
    assert counters["replicas_lost"] > 5
    await engine.close()
    await listening
    ends = Counter(type(crowd.listener.end_of(utterance)).__name__ for utterance in crowd.utterances)
    assert ends.keys() <= {"Done", "Cancelled", "Failed"}
    keep(lost_processes=counters["replicas_lost"], refused=crowd.num_refused, **ends)
