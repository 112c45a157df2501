"""When to try again to connect. Pure: chance is an argument."""

from dataclasses import dataclass
from typing import Final

# Beyond any delay; many more are no floating-point number.
_MAX_DOUBLINGS: Final = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling delays with jitter, so that the clients of a server that restarts do not come back all at once."""

    first_s: float = 0.1
    max_s: float = 5.0
    num_retries: int = 6  # lower gives up sooner; higher keeps `open` waiting for longer
    max_retry_after_s: float = 60.0  # a server that asks for more is given up at once

    def gives_up(self, retry: int, retry_after_ms: int | None) -> bool:
        """Whether there is no `retry`th one, counted from 0."""
        return retry >= self.num_retries or (retry_after_ms or 0) > self.max_retry_after_s * 1000

    def delay_s(self, retry: int, chance: float, retry_after_ms: int | None = None) -> float:
        """Before the `retry`th one, counted from 0; `chance` in [0, 1). Never sooner than the server asked for."""
        full_s = min(self.max_s, self.first_s * 2.0 ** min(retry, _MAX_DOUBLINGS))
        delay_s = full_s * (0.5 + chance / 2)
        return delay_s if retry_after_ms is None else retry_after_ms / 1000 + delay_s
