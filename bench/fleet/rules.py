"""Balancers' rules: which GPU a new socket goes to, by what a balancer can know. Pure."""

from enum import Enum
from random import Random

import numpy as np
import numpy.typing as npt

from voicegate.gateway.server.agent import NEARLY_FULL

Counts = npt.NDArray[np.float64]


class Rule(Enum):
    RANDOM = "random"
    ROUND_ROBIN = "round robin"
    LEAST_SOCKETS = "fewest sockets"  # of the balancer's own, as nginx and HAProxy count
    TWO_CHOICES = "the emptier of two, by /v1/capacity"
    LEAST_BY_FREE_SHARE = "fewest sockets by the free share"
    LEAST_UNTIL_FULL = "fewest sockets by agent-check's weight"  # as shipped


class Balancer:
    """One of several that know nothing of each other. `told`: streams by GPU, as the gateways said last."""

    def __init__(self, rule: Rule, num_gpus: int, *, max_streams: int, random: Random) -> None:
        self._rule = rule
        self._random = random
        self._max_streams = max_streams
        self._num_gpus = num_gpus
        self._next = random.randrange(num_gpus)
        self.sockets: Counts = np.zeros(num_gpus)
        self._weights: Counts = np.ones(num_gpus)
        self._told: Counts = np.zeros(num_gpus)
        self._is_up = np.ones(num_gpus, dtype=bool)

    def hear(self, told: Counts, is_up: npt.NDArray[np.bool_]) -> None:
        self._told, self._is_up = told, is_up
        free = 1 - told / self._max_streams
        if self._rule is Rule.LEAST_UNTIL_FULL:
            free = np.minimum(free / NEARLY_FULL, 1)
        self._weights = np.maximum(free, 0.01)

    def choose(self) -> int:
        match self._rule:
            case Rule.RANDOM:
                return self._any()
            case Rule.ROUND_ROBIN:
                while True:
                    self._next = (self._next + 1) % self._num_gpus
                    if self._is_up[self._next]:
                        return self._next
            case Rule.TWO_CHOICES:
                first, second = self._any(), self._any()
                return first if self._told[first] <= self._told[second] else second
            case Rule.LEAST_SOCKETS:
                return int(np.argmin(np.where(self._is_up, self.sockets, np.inf)))
            case Rule.LEAST_BY_FREE_SHARE | Rule.LEAST_UNTIL_FULL:
                return int(np.argmin(np.where(self._is_up, (self.sockets + 1) / self._weights, np.inf)))

    def _any(self) -> int:
        while True:
            found = self._random.randrange(self._num_gpus)
            if self._is_up[found]:
                return found
