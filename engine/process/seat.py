"""A place for an engine process while its front lives: who has it now, and what is left of those before."""

import asyncio
import dataclasses
from collections.abc import Mapping
from itertools import zip_longest

from voicegate.engine.interface import EngineError, EngineInfo, EngineStats
from voicegate.engine.process.backoff import Backoff
from voicegate.engine.process.replica import Replica
from voicegate.engine.process.site import Site


class Seat:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.name = site.name
        self.backoff = Backoff()
        # What those counted who were here before, and who is: in one, for whoever adds them up in another thread.
        self._counted: tuple[EngineStats, Replica | None] = (EngineStats(), None)
        self.max_utterances: int | None = None  # None: no process was ever ready here
        # Of the first process here: None once it serves, or why it does not.
        self.first_outcome: asyncio.Future[EngineError | None] = asyncio.get_running_loop().create_future()
        self._serves_since_s: float | None = None
        self._num_lost = 0
        self._num_utterances_lost = 0

    @property
    def replica(self) -> Replica | None:
        """It loads, or serves."""
        return self._counted[1]

    @property
    def serving(self) -> Replica | None:
        replica = self.replica
        return None if replica is None or self._serves_since_s is None or replica.lost.is_set() else replica

    def decide(self, outcome: EngineError | None) -> None:
        """The first time counts."""
        if not self.first_outcome.done():
            self.first_outcome.set_result(outcome)

    def seat(self, replica: Replica) -> None:
        self._counted = (self._counted[0], replica)

    def admit(self, replica: Replica, info: EngineInfo, now_s: float) -> None:
        """It serves from now on, unless it is lost already."""
        if not replica.lost.is_set():
            self._serves_since_s, self.max_utterances = now_s, info.max_utterances
            self.decide(None)

    def note_loss(self, replica: Replica, now_s: float) -> float:
        """For how long it served. What it counted goes on counting: a sum that falls would be taken for a new one."""
        since_s, self._serves_since_s = self._serves_since_s, None
        self._num_lost += 1
        self._num_utterances_lost += replica.num_failed
        self._counted = (_sum(self._counted[0], dataclasses.replace(replica.state.stats, gauges={})), None)
        return 0.0 if since_s is None else now_s - since_s

    @property
    def stats(self) -> EngineStats:
        """Of all processes that were here, and how it stands with the one that is. From any thread."""
        (before, replica), serving = self._counted, self.serving
        told = EngineStats() if replica is None else replica.state.stats
        stats = _sum(before, told)
        lost = {"replicas_lost": self._num_lost, "replica_utterances_lost": self._num_utterances_lost}
        now = {
            "replica_ready": 0 if serving is None else 1,
            "replica_utterances": 0 if serving is None else serving.num_placed,
            "replica_room": 0 if serving is None else serving.room,
        }
        # What the process says of its own devices, where it has several, goes on as it is.
        return dataclasses.replace(
            told, counters={**stats.counters, **lost}, gauges={**stats.gauges, **now}, batch_sizes=stats.batch_sizes
        )


def total(parts: Mapping[str, EngineStats]) -> EngineStats:
    """Of several engines, by name, and of those that one of them consists of."""
    whole = EngineStats()
    engines, hangs = dict(parts), dict[str, bool]()
    for part in parts.values():
        whole = _sum(whole, part)
        engines |= part.engines
        hangs |= part.hangs
    return dataclasses.replace(whole, engines=engines, hangs=hangs)


def _sum(first: EngineStats, second: EngineStats) -> EngineStats:
    return EngineStats(
        _sums(first.counters, second.counters),
        _sums(first.gauges, second.gauges),
        {
            stage: [sum(pair) for pair in zip_longest(sizes, second.batch_sizes.get(stage, ()), fillvalue=0)]
            for stage, sizes in {**dict.fromkeys(second.batch_sizes, ()), **first.batch_sizes}.items()
        },
    )


def _sums(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}
