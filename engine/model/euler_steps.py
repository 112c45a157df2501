"""How many Euler steps a flow takes from noise to mel, as model.json may say it. No torch."""

from collections.abc import Mapping
from typing import Final

# Upstream has them in its code, so no released configuration names them.
EULER_STEPS: Final = 10


def euler_steps(raw: Mapping[str, object], section: str) -> int:
    """`inference_steps` beside `inference_cfg_rate`: a flow that was distilled says how many steps it was made for.

    `section` is where `raw` stands in model.json. Raises ValueError.
    """
    steps = raw.get("inference_steps", EULER_STEPS)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"{section}.inference_steps is {steps!r}, not a whole number from 1 on")
    return steps
