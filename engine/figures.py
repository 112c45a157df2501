"""Numbers in messages, where one is compared with another: rounded, but never until they look equal."""

from typing import Final

_MAX_DECIMALS: Final = 9


def told_apart(value: float, limit: float, decimals: int) -> tuple[str, str]:
    """Both, with so many decimals, or with as many more as it takes to see that they differ."""
    for num_decimals in range(decimals, _MAX_DECIMALS):
        told = f"{value:.{num_decimals}f}"
        if float(told) != float(f"{limit:.{num_decimals}f}"):
            break
    return told, f"{limit:.{max(decimals, num_decimals)}f}".rstrip("0").rstrip(".")
