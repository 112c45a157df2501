"""How much of this machine's cores a gateway would have to itself. Linux tells; elsewhere nothing is known."""

import time
from typing import Final

from voicegate.engine.cores import read_core_times, usable_cores

# Long enough to see who computes, short enough not to be waited for.
_LOOK_S: Final = 0.5
# Share of all cores; less is what any machine does beside.
_BUSY_SHARE: Final = 0.2


def shared_cores() -> str | None:
    """Why the cores are not the gateway's own; None: nothing that can be seen."""
    num_cores = len(usable_cores())
    before = read_core_times()
    time.sleep(_LOOK_S)
    now = read_core_times()
    if before is None or now is None:
        return None
    share = now.others_since(before) / num_cores
    if share < _BUSY_SHARE:
        return None
    return f"others keep {100 * share:.0f} % of {num_cores} cores busy: speech takes longer by as much"
