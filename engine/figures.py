"""Numbers in messages, where one is compared with another: rounded, but never until they look equal."""

from typing import Final

_MAX_DECIMALS: Final = 9


def told_apart(value: float, limit: float, decimals: int) -> tuple[str, str]:
    """Both, with so many decimals, or with as many more as it takes to see that they differ."""
    told = [(f"{value:.{num}f}", f"{limit:.{num}f}") for num in range(decimals, _MAX_DECIMALS)]
    return next((both for both in told if both[0] != both[1]), told[-1])
