"""The largest number of streams that a server carries: doubled until it does not, then halved in between. Pure."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from voicegate.clients.bench.table import LOST

# The answer is known when the numbers that do and do not hold are no further apart than this share.
# Lower -> more rounds, which differ from each other by as much.
_CLOSE_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Objective:
    """Objectives that a listener is owed."""

    first_audio_p95_ms: float = 300.0  # of what is audible, too, where that is measured
    c100: float = 0.995
    rtf_p99: float = 1.0  # to be less; not asked where too few turns were heard to their ends for a p99

    def misses(self, row: Mapping[str, Any]) -> str | None:
        """The first that a scenario's row does not meet; None: it meets all."""
        lost = sum(row["outcomes"][each.value] for each in LOST)
        first = row["first_audio_ms"]
        audible = row.get("audible_ms")
        if first is None:
            return "nothing was heard"
        if lost:
            return f"{lost} were refused, failed or had to be cut off"
        if first["p95"] > self.first_audio_p95_ms:
            return f"first audio p95 {first['p95']:.0f} ms, over {self.first_audio_p95_ms:g}"
        if audible is not None and audible["p95"] > self.first_audio_p95_ms:
            return f"audible p95 {audible['p95']:.0f} ms, over {self.first_audio_p95_ms:g}"
        if row["c100"] is not None and row["c100"] < self.c100:
            return f"C100 {row['c100']:.1%}, under {self.c100:.1%}"
        rtf_p99 = None if row["rtf"] is None else row["rtf"]["p99"]
        if rtf_p99 is not None and rtf_p99 >= self.rtf_p99:
            return f"RTF p99 {rtf_p99:.3f}, not under {self.rtf_p99:g}"
        return None


async def largest(holds: Callable[[int], Awaitable[bool]], *, at_most: int) -> int:
    """The largest number from 1 to `at_most` that holds; 0 where not even one stream does. `holds` is asked for each
    number once."""
    good, bad, num = 0, at_most + 1, 1
    while good < at_most:
        if await holds(num):
            good = num
            if bad > at_most:
                num = min(num * 2, at_most)
                continue
        else:
            bad = num
        if bad - good <= max(1, round(good * _CLOSE_SHARE)):
            break
        num = (good + bad) // 2
    return good
