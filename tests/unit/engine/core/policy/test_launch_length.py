import pytest

from voicegate.engine.core.policy.launch_length import euler_steps_at_once


@pytest.mark.parametrize(
    ("num_frames", "of_first", "of_heard"),
    [(20, 200, 3), (400, 10, 3), (1300, 3, 3), (1700, 2, 2), (4200, 1, 1)],
)
def test_first_blocks_go_in_one_launch_and_no_launch_takes_long(num_frames: int, of_first: int, of_heard: int) -> None:
    assert euler_steps_at_once(num_frames, is_first=True) == of_first
    assert euler_steps_at_once(num_frames, is_first=False) == of_heard


def test_of_nothing_there_is_a_step() -> None:
    assert euler_steps_at_once(0, is_first=False) >= 1
