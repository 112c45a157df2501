"""Two numbers of which one is too large for the other never look the same."""

import pytest

from voicegate.engine.figures import told_apart


@pytest.mark.parametrize(
    ("value", "limit", "decimals", "told"),
    [
        (2.76, 2.68, 1, ("2.8", "2.7")),
        (10.04, 10.0, 1, ("10.04", "10.00")),
        (0.9999, 1.0, 2, ("0.9999", "1.0000")),
        (30.00004, 30.0, 2, ("30.00004", "30.00000")),
        (67.108865, 67.108864, 1, ("67.108865", "67.108864")),
        (0.98, 1.0, 2, ("0.98", "1.00")),
        (100.0, 10.0, 0, ("100", "10")),
        (200.0, 100.0, 0, ("200", "100")),
    ],
)
def test_as_many_decimals_as_it_takes(value: float, limit: float, decimals: int, told: tuple[str, str]) -> None:
    assert told_apart(value, limit, decimals) == told
