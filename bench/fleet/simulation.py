"""Sockets that speak turn after turn over a fleet, GPUs that fail under them, and the first audio of each turn.

Time is the simulation's own. A socket stays on its GPU, as sockets do; a turn has a stream until it has been heard.
"""

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np

from voicegate.bench.fleet.gpu import Gpu
from voicegate.bench.fleet.rules import Balancer, Rule

_TELL_S: Final = 0.5  # agent-inter
_COME_BACK_S: Final = (0.25, 1.0)  # after a socket was lost: a client's backoff
_TURN_S: Final = (3.0, 15.0)  # as in the runs that the GPU's figures come from
_PAUSE_S: Final = (3.0, 15.0)  # in which the other side speaks: so half of the sockets are live
_NUM_TURNS: Final = (4, 12)
_COMINGS_PER_TELL: Final = 700  # 100,000 streams are 200,000 sockets of 144 s, so that 1400 a second are new


@dataclass(frozen=True, slots=True)
class Case:
    rule: Rule
    num_gpus: int
    num_streams: int  # live, on average
    num_failing: int = 0  # at once
    num_balancers: int = 4
    settle_s: float = 6.0  # before anything is counted, and again for GPUs to fail in
    measure_s: float = 4.0  # before the failure, and after it
    seed: int = 0


@dataclass(slots=True)
class Window:
    """Events of the turns that began in it."""

    first_audio_ms: list[float] = field(default_factory=list)
    num_refused: int = 0
    num_lost: int = 0  # cut in the middle by a failure
    most_streams: int = 0  # that a GPU had

    def report(self) -> dict[str, float | int | None]:
        times = np.array(self.first_audio_ms)
        p50, p95, p99 = (round(float(np.quantile(times, q, method="inverted_cdf")), 1) for q in (0.5, 0.95, 0.99))
        return {
            "turns": len(times) + self.num_refused,
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            "refused": self.num_refused,
            "lost": self.num_lost,
            "most_streams_of_a_gpu": self.most_streams,
        }


class Fleet:
    def __init__(self, case: Case, gpu: Gpu) -> None:
        self._case, self._gpu = case, gpu
        self._random = Random(case.seed)
        self._table = gpu.table_ms()
        self._balancers = [
            Balancer(case.rule, case.num_gpus, max_streams=gpu.max_streams, random=self._random)
            for _ in range(case.num_balancers)
        ]
        self._streams = [0] * case.num_gpus
        self._is_up = [True] * case.num_gpus
        self._now_s = 0.0
        self._events: list[tuple[float, int, int]] = []  # when, socket, of which life
        num_sockets = 2 * case.num_streams
        self._home = [-1] * num_sockets
        self._door = [socket % case.num_balancers for socket in range(num_sockets)]  # the balancer that it came by
        self._life = [0] * num_sockets  # what was to come of an earlier one comes no more
        self._speaks = [False] * num_sockets
        self._turns = [self._random.randint(*_NUM_TURNS) for _ in range(num_sockets)]
        self._window: Window | None = None

    def run(self) -> dict[str, dict[str, float | int | None]]:
        case = self._case
        self._fill()
        self._until(case.settle_s)
        before = self._measure(case.measure_s)
        if not case.num_failing:
            return {"steady": before.report()}
        self._window = at_once = Window()
        self._fail()
        self._until(self._now_s + 5.0)
        self._window = None
        self._until(self._now_s + case.settle_s)
        after = self._measure(case.measure_s)
        return {"steady": before.report(), "5 s after": at_once.report(), "settled": after.report()}

    def _measure(self, seconds: float) -> Window:
        self._window = window = Window()
        self._until(self._now_s + seconds)
        self._window = None
        return window

    # --- what happens ---------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """In turn, as they would have come, and then as long a coming and going as makes where they are forget that.

        Each is in the middle of a turn or of a pause.
        """
        num_sockets = len(self._home)
        comings = [*range(num_sockets), *(self._random.randrange(num_sockets) for _ in range(num_sockets))]
        for number, socket in enumerate(comings):
            if number % _COMINGS_PER_TELL == 0:
                self._tell()
            if self._home[socket] >= 0:
                self._streams[self._home[socket]] -= self._speaks[socket]
                self._leave(socket)
            self._place(socket)
            self._speaks[socket] = self._random.random() < 0.5
            self._streams[self._home[socket]] += self._speaks[socket]
        for socket in range(num_sockets):
            self._turns[socket] = self._random.randint(1, _NUM_TURNS[1])
            self._later(socket, self._between(0.0, _TURN_S[1]))

    def _until(self, end_s: float) -> None:
        next_told_s = self._now_s
        while self._events and self._events[0][0] < end_s:
            self._now_s, socket, life = heapq.heappop(self._events)
            if self._now_s >= next_told_s:
                self._tell()
                next_told_s = self._now_s + _TELL_S
            if life == self._life[socket]:
                self._advance(socket)
        self._now_s = end_s

    def _advance(self, socket: int) -> None:
        """From turn to pause, from pause to turn, or to another socket in its place."""
        if self._speaks[socket]:
            self._speaks[socket] = False
            self._streams[self._home[socket]] -= 1
            self._turns[socket] -= 1
            self._later(socket, self._between(*_PAUSE_S))
            return
        if self._turns[socket] <= 0:
            if self._home[socket] >= 0:
                self._leave(socket)
            self._turns[socket] = self._random.randint(*_NUM_TURNS)
        if self._home[socket] < 0:
            self._place(socket)
        self._begin_turn(socket)

    def _begin_turn(self, socket: int) -> None:
        home = self._home[socket]
        if self._streams[home] >= self._gpu.max_streams:
            if self._window is not None:
                self._window.num_refused += 1
            self._later(socket, self._between(*_COME_BACK_S))  # it asks again
            return
        self._streams[home] += 1
        self._speaks[socket] = True
        num_streams = self._streams[home]
        if self._window is not None:
            share = self._random.random()
            number = min(bisect_right(self._gpu.shares, share), len(self._gpu.shares) - 1)
            row = self._table[num_streams]
            low = self._gpu.shares[number - 1] if number else 0.0
            start = row[number - 1] if number else row[0]
            passed = (share - low) / (self._gpu.shares[number] - low)
            self._window.first_audio_ms.append(start + passed * (row[number] - start))
            self._window.most_streams = max(self._window.most_streams, num_streams)
        self._later(socket, self._between(*_TURN_S))

    def _fail(self) -> None:
        """Their sockets are lost, and come back by the balancers, which see it at once: the connection is refused."""
        assert self._window is not None
        gone = set(self._random.sample(range(self._case.num_gpus), self._case.num_failing))
        for number in gone:
            self._is_up[number] = False
        self._tell()
        for socket, home in enumerate(self._home):
            if home not in gone:
                continue
            self._window.num_lost += self._speaks[socket]
            self._speaks[socket] = False
            self._leave(socket)
            self._later(socket, self._between(*_COME_BACK_S))
        for number in gone:
            self._streams[number] = 0

    # --- sockets ----------------------------------------------------------------------------------------------

    def _place(self, socket: int) -> None:
        balancer = self._balancers[self._door[socket]]
        home = balancer.choose()
        balancer.sockets[home] += 1
        self._home[socket] = home

    def _leave(self, socket: int) -> None:
        self._balancers[self._door[socket]].sockets[self._home[socket]] -= 1
        self._home[socket] = -1

    def _tell(self) -> None:
        streams, is_up = np.array(self._streams, dtype=np.float64), np.array(self._is_up)
        for balancer in self._balancers:
            balancer.hear(streams, is_up)

    def _later(self, socket: int, seconds: float) -> None:
        self._life[socket] += 1
        heapq.heappush(self._events, (self._now_s + seconds, socket, self._life[socket]))

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()
