"""Rules of the engine that can be switched off, one at a time: a rule that wins nothing goes (docs/adr/0025)."""

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Final
from unittest.mock import patch

from voicegate.engine.core import growth, limits, roster
from voicegate.engine.core.policy import growth as growth_policy
from voicegate.engine.core.policy import scheduler

# The constants of each, and the values with which it does nothing.
RULES: Final[dict[str, tuple[tuple[ModuleType, str, float], ...]]] = {
    "calm-steps": ((scheduler, "_CALM_STEP_EVERY", 1),),  # docs/adr/0009
    "dry-share": ((growth_policy, "_DRY_SHARE", 0.0),),  # docs/adr/0006
    "gathering": ((growth, "_GATHERING_S", -1.0),),  # docs/adr/0011
    "light-guard": ((limits, "_GPU_LIGHT_GUARD_S", math.inf),),  # docs/adr/0007
    "taken-along": ((scheduler, "_BUSY", 0.0),),  # docs/adr/0009
    "tight-room": ((roster, "_TIGHT_SHARE", 0.0), (roster, "_EASED_SHARE", 0.0)),  # docs/adr/0008
}


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Raises ValueError for a name that is no rule."""
    with ExitStack() as switched_off:
        for name in names:
            if name not in RULES:
                raise ValueError(f"--without {name}: the rules are {', '.join(RULES)}")
            for module, constant, value in RULES[name]:
                switched_off.enter_context(patch.object(module, constant, value))
        yield
