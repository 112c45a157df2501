"""Pitch in pieces equals pitch at once, in rows of one batch that advance by different amounts."""

import pytest
import torch

from tests.support import golden
from voicegate.engine.vocoder.torch.f0 import LOOK_RIGHT_FRAMES, F0Predictor
from voicegate.engine.vocoder.torch.state import BatchRows, StateTable
from voicegate.engine.vocoder.weights import load_vocoder_weights

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def predictor() -> F0Predictor:
    config = golden.golden_vocoder_config()
    return F0Predictor(load_vocoder_weights(config, golden.golden_state_dict("hift"), device=CPU))


def random_mel(num_frames: int) -> torch.Tensor:
    return torch.randn(80, num_frames, generator=torch.Generator().manual_seed(4))


def test_frames_that_are_known_do_not_depend_on_those_to_come(predictor: F0Predictor) -> None:
    mel = random_mel(30)
    known = predictor.whole(mel[:, :20], is_final=False)
    assert known.shape == (17,)
    assert known.dtype == torch.float64
    assert torch.allclose(known, predictor.whole(mel, is_final=True)[:17], atol=1e-9)


@pytest.mark.parametrize("steps", [[(6, 6), (6, 6)], [(1, 5), (7, 2), (1, 1)]])
def test_pieces_equal_the_whole(predictor: F0Predictor, steps: list[tuple[int, int]]) -> None:
    mel = random_mel(40)
    expected = predictor.whole(mel, is_final=False)
    table = StateTable(predictor.layout, 2, dtype=torch.float64, device=CPU)
    slots = torch.tensor([0, 1])
    done = [0, 0]
    for step in steps:
        longest = max(step)
        rows = BatchRows(
            frames=torch.tensor(step),
            is_first=torch.tensor([False, False]),
            is_final=torch.tensor([False, False]),
            uniform_frames=step[0] if step[0] == step[1] else None,
        )
        pieces = torch.stack([mel.T[start : start + longest + LOOK_RIGHT_FRAMES] for start in done])
        state = table.gather(slots)
        f0 = predictor.advance(pieces, table.tails(state), rows)
        table.scatter(slots, state)
        for row, num_frames in enumerate(step):
            start = done[row]
            assert torch.allclose(f0[row, :num_frames], expected[start : start + num_frames], atol=1e-9)
            done[row] = start + num_frames
