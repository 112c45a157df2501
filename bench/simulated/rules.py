"""Rules of the engine that can be switched off, one at a time: a rule that wins nothing goes (docs/adr/0025)."""

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

from voicegate.engine.core import constants

# The constants of each, and the values with which it does nothing.
RULES: Final[dict[str, dict[str, float]]] = {
    "calm-steps": {"CALM_STEP_EVERY": 1},  # docs/adr/0009
    "dry-share": {"DRY_SHARE": 0.0},  # docs/adr/0006
    "gathering": {"GATHERING_S": -1.0},  # docs/adr/0011
    "light-guard": {"LIGHT_GUARD_S": math.inf},  # docs/adr/0007
    "taken-along": {"BUSY_SHARE": 0.0},  # docs/adr/0009
    "tight-room": {"TIGHT_SHARE": 0.0, "EASED_SHARE": 0.0},  # docs/adr/0008
}


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Raises ValueError for a name that is no rule."""
    with ExitStack() as switched_off:
        for name in names:
            if name not in RULES:
                raise ValueError(f"--without {name}: the rules are {', '.join(RULES)}")
            for constant, value in RULES[name].items():
                switched_off.enter_context(patch.object(constants, constant, value))
        yield
