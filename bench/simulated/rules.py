"""Rules of the engine that can be switched off, one at a time: a rule that wins nothing goes (docs/adr/0025)."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.core import constants


def _no_hint(*_: object) -> None:
    """The LLM is never told that its next tokens are not needed yet."""


# The parts of each, and the values with which it does nothing.
RULES: Final[dict[str, tuple[tuple[object, str, object], ...]]] = {
    "buffered-steps": ((constants, "BUFFERED_STEP_EVERY", 1),),  # docs/adr/0009
    "underrun-share": ((constants, "UNDERRUN_SHARE", 0.0),),  # docs/adr/0006
    "hold-back": ((HollowRunner, "tell_after", _no_hint),),  # docs/adr/0009
    "light-guard": ((constants, "LIGHT_GUARD_S", constants.GUARD_S),),  # docs/adr/0007
    "taken-along": ((constants, "BUSY_SHARE", 0.0),),  # docs/adr/0009
}


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Raises ValueError for a name that is no rule."""
    with ExitStack() as switched_off:
        for name in names:
            if name not in RULES:
                raise ValueError(f"--without {name}: the rules are {', '.join(RULES)}")
            for place, part, value in RULES[name]:
                switched_off.enter_context(patch.object(place, part, value))
        yield
