"""The sampler's rules on hand-made scores, and that a row's draw depends on nothing but the row."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.llm.support import small_llm_config
from voicegate.engine.llm.slots import first_uniforms, seed_key, uniforms
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler, inverse_cdf
from voicegate.engine.model.config import SamplingConfig

CONFIG = small_llm_config()
SOS, EOS = CONFIG.sos_id, CONFIG.eos_id
NUM_IDS = CONFIG.num_speech_rows
NO_HISTORY = [-1] * 10


def draw(scores: torch.Tensor, *, history: list[int], ignore_eos: bool = False, at: tuple[float, float]) -> int:
    sampler = RepetitionAwareSampler(SamplingConfig(), CONFIG)
    drawn = sampler.sample(
        scores.clone()[None],
        history=torch.tensor([history]),
        ignore_eos=torch.tensor([ignore_eos]),
        uniforms=torch.tensor([at], dtype=torch.float64),
    )
    assert drawn.shape == (1,)
    return int(drawn)


def peaked(*ids: int) -> torch.Tensor:
    """Nearly all probability on these, equally."""
    scores = torch.full((NUM_IDS,), -15.0)
    scores[list(ids)] = 0.0
    return scores


def test_the_candidate_that_crosses_top_p_is_in() -> None:
    scores = torch.tensor([0.5, 0.25, 0.125, 0.125] + [0.0] * (NUM_IDS - 4)).log()
    candidates, weights = RepetitionAwareSampler(SamplingConfig(), CONFIG).nucleus(scores[None])
    assert candidates[0, :3].tolist() == [0, 1, 2]
    assert weights[0].tolist() == [0.5, 0.25, 0.125] + [0.0] * 22


def test_no_candidate_follows_where_top_p_is_just_reached() -> None:
    scores = torch.tensor([0.5, 0.25, 0.125, 0.125] + [0.0] * (NUM_IDS - 4)).log()
    _, weights = RepetitionAwareSampler(SamplingConfig(top_p=0.75), CONFIG).nucleus(scores[None])
    assert weights[0, :3].tolist() == [0.5, 0.25, 0.0]


@pytest.mark.parametrize("place", range(10))
def test_a_token_anywhere_in_the_window_is_redrawn(place: int) -> None:
    history = NO_HISTORY.copy()
    history[place] = 7
    assert draw(peaked(7), history=NO_HISTORY, at=(0.5, 0.5)) == 7
    assert draw(peaked(7), history=history, at=(0.5, 0.5)) != 7


def test_the_redraw_knows_no_nucleus() -> None:
    reached = {draw(peaked(7), history=[7] * 10, at=(0.5, u)) for u in np.linspace(0.001, 0.999, 999)}
    assert reached == set(range(NUM_IDS)) - {7}  # specials too, as upstream


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_ignore_eos_masks_sos_and_not_eos(ignore_eos: bool) -> None:
    reached = {draw(peaked(SOS, EOS), history=NO_HISTORY, ignore_eos=ignore_eos, at=(u, 0.5)) for u in (0.1, 0.9)}
    assert reached == ({EOS} if ignore_eos else {SOS, EOS})


def test_a_masked_sos_stays_masked_in_the_redraw() -> None:
    points = np.linspace(0.001, 0.999, 999)
    reached = {draw(peaked(7), history=[7] * 10, ignore_eos=True, at=(0.5, u)) for u in points}
    assert reached == set(range(NUM_IDS)) - {7, SOS}


def test_scores_that_are_not_finite_still_give_an_id() -> None:
    assert 0 <= draw(torch.full((NUM_IDS,), torch.nan), history=NO_HISTORY, at=(0.5, 0.5)) < NUM_IDS


def test_inverse_cdf_counts_the_entries_below() -> None:
    weights = torch.tensor([[0.0, 2.0, 0.0, 6.0, 0.0]]).expand(5, -1)
    points = torch.tensor([1e-16, 0.25, 0.2500001, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert inverse_cdf(weights, points).tolist() == [1, 1, 3, 3, 3]


@given(st.lists(st.tuples(st.integers(0, 2**64), st.integers(0, 40)), min_size=1, max_size=6), st.integers(0, 99))
def test_a_row_alone_equals_the_row_in_any_batch(rows: list[tuple[int, int]], content: int) -> None:
    generator = torch.Generator().manual_seed(content)
    scores = torch.randn(len(rows), NUM_IDS, generator=generator) * 4
    history = torch.randint(-1, NUM_IDS, (len(rows), 10), generator=generator)
    ignore_eos = torch.randint(0, 2, (len(rows),), generator=generator) > 0
    keys = np.array([seed_key(seed) for seed, _ in rows])
    calls = np.array([call for _, call in rows], dtype=np.uint64)
    sampler = RepetitionAwareSampler(SamplingConfig(), CONFIG)

    def sample(chosen: slice) -> list[int]:
        drawn = sampler.sample(
            scores[chosen].clone(),
            history=history[chosen],
            ignore_eos=ignore_eos[chosen],
            uniforms=torch.from_numpy(uniforms(keys[chosen], calls[chosen])),
        )
        return [int(token) for token in drawn]

    together = sample(slice(None))
    assert together == [sample(slice(index, index + 1))[0] for index in range(len(rows))]


def test_uniforms_are_open_even_and_distinct() -> None:
    keys = np.array([seed_key(seed) for seed in range(300)])
    drawn = np.stack([uniforms(keys, np.full(300, call, dtype=np.uint64)) for call in range(100)])
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert len(np.unique(drawn)) == drawn.size
    counts, _ = np.histogram(drawn, bins=50, range=(0, 1))
    assert abs(counts / drawn.size * 50 - 1).max() < 0.1  # 1200 a bin, so 3.5 standard deviations
    correlation = np.corrcoef(drawn[:-1, :, 1].ravel(), drawn[1:, :, 0].ravel())[0, 1]
    assert abs(correlation) < 0.02


def test_seeds_are_taken_modulo_two_to_the_64() -> None:
    assert seed_key(-1) == seed_key(2**64 - 1)
    assert seed_key(0) != seed_key(1)


@pytest.mark.parametrize("seed", [0, 1, -1, 7, 2**63 - 1, 2**64 - 1])
def test_the_first_uniforms_are_those_of_call_0(seed: int) -> None:
    key = seed_key(seed)
    assert first_uniforms(key) == uniforms(np.array([key]), np.zeros(1, np.uint64))[0].tolist()
