"""Speed change in pieces equals speed change at once, and upstream's interpolation where both are defined."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.vocoder.stretch import MelStretch


@pytest.mark.parametrize(("num_frames", "speed"), [(40, 4 / 3), (40, 0.5), (40, 2.0), (60, 1.25), (30, 0.75)])
def test_equals_linear_interpolation_of_the_whole(num_frames: int, speed: float) -> None:
    mel = torch.randn(80, num_frames, generator=torch.Generator().manual_seed(1))
    expected = torch.nn.functional.interpolate(mel[None], size=round(num_frames / speed), mode="linear")[0]
    assert torch.allclose(MelStretch(speed).push(mel, is_final=True), expected, atol=1e-5)


@given(
    speed=st.floats(0.5, 2.0, allow_nan=False),
    pieces=st.lists(st.integers(0, 9), min_size=1, max_size=12),
)
def test_pieces_equal_the_whole(speed: float, pieces: list[int]) -> None:
    mel = torch.randn(80, sum(pieces), generator=torch.Generator().manual_seed(2))
    whole = MelStretch(speed).push(mel, is_final=True)
    stretch = MelStretch(speed)
    chunks = [stretch.push(chunk, is_final=False) for chunk in mel.split(pieces, dim=1)]
    chunks.append(stretch.push(mel[:, :0], is_final=True))
    assert torch.allclose(torch.cat(chunks, dim=1), whole, atol=1e-6)


def test_speed_one_passes_frames_through_untouched() -> None:
    mel = torch.randn(80, 7)
    assert MelStretch(1.0).push(mel, is_final=False) is mel
