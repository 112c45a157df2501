"""Which tokens make a chunk, and what is left of a context: tables."""

import numpy as np
import pytest

from voicegate.engine.families.stepaudio2.flow.chunking import ChunkSchedule, trimmed_context, whole_context


@pytest.mark.parametrize(
    ("chunk", "num_waiting", "is_finished", "expected"),
    [
        (0, 17, False, (0, False)),
        (0, 18, False, (15, False)),
        (0, 18, True, (15, False)),  # as if more were to come: when the end is told changes nothing
        (0, 17, True, (17, True)),
        (0, 1, True, (1, True)),
        (0, 0, True, (0, True)),
        (1, 27, False, (0, False)),
        (1, 100, True, (25, False)),
        (2, 53, False, (50, False)),
        (9, 53, False, (50, False)),
        (9, 52, True, (52, True)),
    ],
)
def test_next_chunk(chunk: int, num_waiting: int, is_finished: bool, expected: tuple[int, bool]) -> None:
    assert ChunkSchedule().next_chunk(chunk, num_waiting, lookahead=3, is_finished=is_finished) == expected


def test_whole_context_keeps_all_in_order() -> None:
    kept = whole_context(np.arange(5), np.arange(5, 9), num_prompt_frames=2)
    assert kept.tolist() == list(range(9))


@pytest.mark.parametrize(
    ("num_known", "num_new", "num_prompt", "expected"),
    [
        (60, 50, 10, [*range(60, 110), *range(60)]),  # 110: as many as are kept
        (60, 52, 10, [*range(60, 70), *range(72, 112), *range(60)]),
        # More new frames than the prompt has: the newest of them are forgotten first.
        (110, 104, 10, [*range(110, 120), *range(10, 110)]),
    ],
)
def test_trimmed_context(num_known: int, num_new: int, num_prompt: int, expected: list[int]) -> None:
    new = np.arange(num_known, num_known + num_new)
    assert trimmed_context(np.arange(num_known), new, num_prompt_frames=num_prompt).tolist() == expected
