"""Room that a limit on open files leaves."""

import pytest

from voicegate.gateway.server.entrance.descriptors import (
    OWN_FILES,
    SPARE_CONNECTIONS,
    FileLimits,
    file_limits,
    make_room_for,
)

BESIDE = OWN_FILES + SPARE_CONNECTIONS


@pytest.mark.parametrize(
    ("soft", "hard", "raised_soft", "num_sockets"),
    [
        (1024, 1024, 1024, 1024 - BESIDE),
        (1024, 4096, 1024 + BESIDE, 1024),
        (1024, 1100, 1100, 1100 - BESIDE),
        (1024, None, 1024 + BESIDE, 1024),
        (100_000, 100_000, 100_000, 1024),
        (None, None, None, 1024),
        (256, 256, 256, 0),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed(
    soft: int | None, hard: int | None, raised_soft: int | None, num_sockets: int
) -> None:
    raised = FileLimits(soft, hard).raised_for(1024)
    assert raised == FileLimits(raised_soft, hard)
    assert raised.room_for(1024) == num_sockets


def test_this_process_has_room_for_a_few() -> None:
    assert make_room_for(10) == 10
    soft = file_limits().soft
    assert soft is None or soft >= 10 + BESIDE
