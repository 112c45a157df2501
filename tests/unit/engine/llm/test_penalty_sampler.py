"""Sampling by repetition penalty against the rule written out in numpy, a row at a time."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.llm.support import small_llm_config
from voicegate.engine.llm.torch.penalty_sampler import RepetitionPenaltySampler
from voicegate.engine.model.config import PenaltySamplingConfig

CONFIG = small_llm_config()
NUM_IDS = CONFIG.num_speech_rows
FIRST_SPECIAL = CONFIG.speech_token_size
AS_DEPLOYED = PenaltySamplingConfig()


def probabilities(
    logits: npt.NDArray[np.float64], fed: set[int], sampling: PenaltySamplingConfig
) -> npt.NDArray[np.float64]:
    """Probabilities of each id: a fed one is divided by the penalty where positive, else multiplied; top-k, then top-p
    in it."""
    logits = logits.copy()
    for id_ in fed:
        logits[id_] = logits[id_] / sampling.repetition_penalty if logits[id_] > 0 else (
            logits[id_] * sampling.repetition_penalty
        )  # fmt: skip
    logits = logits / sampling.temperature
    order = sorted(range(len(logits)), key=lambda id_: (-logits[id_], id_))[: sampling.top_k]
    weights = np.exp(logits[order] - logits[order[0]])
    weights /= weights.sum()
    kept, total = [], 0.0
    for id_, weight in zip(order, weights, strict=True):
        if total >= sampling.top_p:
            break
        kept.append((id_, weight))
        total += weight
    result = np.zeros(len(logits))
    for id_, weight in kept:
        result[id_] = weight / total
    return result


def nucleus(logits: npt.NDArray[np.float64], fed: set[int], sampling: PenaltySamplingConfig) -> npt.NDArray[np.float64]:
    """Likewise for the sampler's candidates."""
    scores = torch.from_numpy(logits.astype(np.float32))[None]
    seen = torch.zeros(1, NUM_IDS, dtype=torch.bool)
    seen[0, list(fed)] = True
    ids, weights = RepetitionPenaltySampler(sampling, CONFIG).nucleus(scores, seen)
    result = np.zeros(NUM_IDS)
    result[ids[0].numpy()] = weights[0].double().numpy() / float(weights.double().sum())
    return result


def draw(
    scores: torch.Tensor,
    *,
    fed: tuple[int, ...] = (),
    at: float,
    ignore_eos: bool = False,
    sampling: PenaltySamplingConfig = AS_DEPLOYED,
) -> int:
    seen = torch.zeros(1, NUM_IDS, dtype=torch.bool)
    seen[0, list(fed)] = True
    drawn = RepetitionPenaltySampler(sampling, CONFIG).sample(
        scores.clone()[None],
        seen=seen,
        ignore_eos=torch.tensor([ignore_eos]),
        uniforms=torch.tensor([[at, 0.5]], dtype=torch.float64),
    )
    assert drawn.shape == (1,)
    return int(drawn)


@pytest.mark.parametrize("spread", [0.3, 2.0, 8.0])
@pytest.mark.parametrize("sampling", [AS_DEPLOYED, PenaltySamplingConfig(1.0, 0.8, 25, 1.5)])
def test_candidates_are_those_of_the_rule(spread: float, sampling: PenaltySamplingConfig) -> None:
    numbers = np.random.default_rng(3)
    for shift in (-4.0, 0.0, 4.0):  # scores all negative, mixed, all positive: the penalty has two sides
        logits = np.float64(np.float32(numbers.normal(shift, spread, NUM_IDS)))
        fed = set(numbers.integers(0, NUM_IDS, 200).tolist())
        np.testing.assert_allclose(nucleus(logits, fed, sampling), probabilities(logits, fed, sampling), atol=2e-6)


def test_top_p_is_of_what_top_k_leaves() -> None:
    logits = np.zeros(NUM_IDS)  # all alike: of 500, the first ten; half of those
    sampling = PenaltySamplingConfig(temperature=1.0, top_p=0.5, top_k=10, repetition_penalty=1.0)
    assert np.flatnonzero(nucleus(logits, set(), sampling)).tolist() == [0, 1, 2, 3, 4]


def test_a_flag_keeps_the_end_from_coming_up() -> None:
    scores = torch.full((NUM_IDS,), -15.0)
    scores[FIRST_SPECIAL] = scores[FIRST_SPECIAL + 2] = 9.0
    assert draw(scores, at=0.01) == FIRST_SPECIAL
    assert draw(scores, at=0.01, ignore_eos=True) == FIRST_SPECIAL + 2


@given(seed=st.integers(0, 1000), others=st.integers(0, 3), at=st.floats(0.001, 0.999))
def test_a_row_does_not_depend_on_its_batch(seed: int, others: int, at: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(1 + others, NUM_IDS, generator=generator)
    seen = torch.rand(1 + others, NUM_IDS, generator=generator) < 0.3
    batched = RepetitionPenaltySampler(AS_DEPLOYED, CONFIG).sample(
        scores.clone(),
        seen=seen,
        ignore_eos=torch.zeros(1 + others, dtype=torch.bool),
        uniforms=torch.full((1 + others, 2), at, dtype=torch.float64),
    )
    assert int(batched[0]) == draw(scores[0], fed=tuple(seen[0].nonzero()[:, 0].tolist()), at=at)


def test_draws_follow_the_probabilities() -> None:
    logits = np.float64(np.float32(np.random.default_rng(1).normal(0, 3, NUM_IDS)))
    fed = {int(np.argmax(logits))}
    wanted = probabilities(logits, fed, AS_DEPLOYED)
    count = 4000
    uniforms = torch.from_numpy((np.arange(count) + 0.5) / count)
    drawn = RepetitionPenaltySampler(AS_DEPLOYED, CONFIG).sample(
        torch.from_numpy(logits).float().repeat(count, 1),
        seen=torch.tensor([[id_ in fed for id_ in range(NUM_IDS)]]).repeat(count, 1),
        ignore_eos=torch.zeros(count, dtype=torch.bool),
        uniforms=torch.stack([uniforms, uniforms], 1),
    )
    shares = np.bincount(drawn.numpy(), minlength=NUM_IDS) / count
    np.testing.assert_allclose(shares, wanted, atol=1.5 / count)


def test_scores_that_are_no_numbers_still_give_an_id() -> None:
    assert 0 <= draw(torch.full((NUM_IDS,), torch.nan), at=0.99) < NUM_IDS
