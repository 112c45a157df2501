"""How many log lines of each kind may leave, however many there are. Pure: time is an argument."""

from dataclasses import dataclass
from typing import Final

# Worth of time that may come at once. Lower leaves lines of a busy second out; higher lets each flood write more.
_BURST_S: Final = 5.0
# Between two accounts of what was left out. Lower writes more while a flood goes on.
REPORT_S: Final = 10.0


@dataclass(slots=True)
class _Kind:
    full_at_s: float = 0.0  # when the allowance is whole again, if no more lines come
    num_left_out: int = 0
    since_s: float = 0.0  # when the first of these was


class LineBounds:
    def __init__(self, lines_per_s: float) -> None:
        """Bounds each kind by itself."""
        self._line_s = 1 / lines_per_s
        self._kinds: dict[str, _Kind] = {}
        self._num_kinds_left_out = 0

    @property
    def has_report(self) -> bool:
        """Whether lines were left out that `take_report` has not told of."""
        return self._num_kinds_left_out > 0

    @property
    def next_report_s(self) -> float | None:
        """When `take_report` is due; None: nothing was left out."""
        if not self._num_kinds_left_out:
            return None
        return min(kind.since_s for kind in self._kinds.values() if kind.num_left_out) + REPORT_S

    def admits(self, name: str, now_s: float) -> bool:
        """A line of the kind `name`, of which there are few. False: it is left out, and counted."""
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind()
        rest_s = max(0.0, kind.full_at_s - now_s) + self._line_s
        if rest_s <= _BURST_S:
            kind.full_at_s = now_s + rest_s
            return True
        if not kind.num_left_out:
            kind.since_s = now_s
            self._num_kinds_left_out += 1
        kind.num_left_out += 1
        return False

    def take_report(self, now_s: float) -> list[tuple[str, int]]:
        """Kinds of which lines were left out for long enough, and how many."""
        due = [name for name, kind in self._kinds.items() if kind.num_left_out and now_s >= kind.since_s + REPORT_S]
        report = [(name, self._kinds[name].num_left_out) for name in due]
        for name in due:
            self._kinds[name].num_left_out = 0
        self._num_kinds_left_out -= len(due)
        return report
