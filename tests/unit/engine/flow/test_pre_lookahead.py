"""The pre-lookahead layer window by window equals one call over the whole sequence."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.flow import make_model, make_tokens

MODEL = make_model()


@settings(max_examples=10)
@given(num_tokens=st.integers(1, 60), size=st.integers(1, 30))
def test_windows_equal_the_whole(num_tokens: int, size: int) -> None:
    tokens = make_tokens(num_tokens)
    whole = MODEL.mu([MODEL.token_window(tokens, 0, num_tokens)])
    starts = range(0, num_tokens, size)
    windows = [MODEL.token_window(tokens, start, min(size, num_tokens - start)) for start in starts]
    pieces = torch.cat([MODEL.mu([window]) for window in windows], dim=1)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-6)


def test_a_batch_of_first_and_later_windows_equals_each_alone() -> None:
    tokens = make_tokens(60)
    windows = [MODEL.token_window(tokens, start, 25) for start in (0, 25, 50)]
    alone = torch.cat([MODEL.mu([window]) for window in windows])
    torch.testing.assert_close(MODEL.mu(windows), alone, rtol=0, atol=1e-6)


def test_each_token_becomes_two_equal_frames() -> None:
    mu = MODEL.mu([MODEL.token_window(make_tokens(10), 0, 10)])
    assert mu.shape == (1, 20, 80)
    assert torch.equal(mu[:, ::2], mu[:, 1::2])


def test_a_token_sees_three_ahead_and_no_further() -> None:
    tokens = make_tokens(20)

    def first_four(changed: int) -> torch.Tensor:
        altered = [*tokens]
        altered[changed] = (altered[changed] + 1) % 6561
        return MODEL.mu([MODEL.token_window(altered, 0, 4)])

    unaltered = MODEL.mu([MODEL.token_window(tokens, 0, 4)])
    assert torch.equal(first_four(changed=7), unaltered)
    assert not torch.equal(first_four(changed=6), unaltered)


def test_window_marks_what_does_not_exist() -> None:
    assert MODEL.token_window([7, 8, 9, 10], 0, 3) == [-1, -1, 7, 8, 9, 10, -1, -1]
    assert MODEL.token_window([7, 8, 9, 10], 3, 1) == [8, 9, 10, -1, -1, -1]
    assert MODEL.token_window(list(range(20)), 5, 2) == [3, 4, 5, 6, 7, 8, 9]
