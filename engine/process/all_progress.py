"""How several engines' start gets on, as that of one: lines behind their names, shares added up."""

from collections import defaultdict
from dataclasses import dataclass

from voicegate.engine.load.progress import Progress


class AllProgress:
    def __init__(self, told: Progress) -> None:
        self.told = told
        self._shares: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)  # by part and engine

    def of(self, name: str) -> Progress:
        return _One(self, name)

    def share(self, name: str, part: str, num_done: int, num_steps: int) -> None:
        shares = self._shares[part]
        shares[name] = (num_done, num_steps)
        self.told.share(part, sum(done for done, _ in shares.values()), sum(steps for _, steps in shares.values()))


@dataclass(frozen=True, slots=True)
class _One:
    """Implements Progress."""

    all: AllProgress
    name: str

    def line(self, text: str) -> None:
        self.all.told.line(f"{self.name}: {text}")

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        self.all.share(self.name, part, num_done, num_steps)
