"""The sampling kernel chooses what the CPU's sampler chooses, from the same scores and uniforms."""

import numpy as np
import pytest
import torch

from tests.support.golden import load_arrays
from tests.support.llm_draws import KernelSampler, flags_of
from tests.unit.engine.llm.support import golden_llm_config, small_llm_config
from voicegate.engine.llm.cuda import packing
from voicegate.engine.llm.cuda.draws import RepetitionAwareDraws
from voicegate.engine.llm.torch.penalty_sampler import RepetitionPenaltySampler
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import PenaltySamplingConfig, Sampling, SamplingConfig

SMALL = small_llm_config()
NUM_IDS = SMALL.num_speech_rows
NUM_STEPS = 24  # of upstream's 60; the rest runs on a GPU


def test_upstreams_trace() -> None:
    golden = load_arrays("ras.npz")
    sampler = KernelSampler(golden_llm_config(), num_slots=1, device="cpu")
    used = iter(golden["unif_used"].tolist())
    drawn = []
    for step in range(NUM_STEPS):
        at = [next(used), next(used) if golden["unif_branch"][step] else 0.5]
        scores = torch.from_numpy(golden["logits"][golden["logits_index"][step]])[None]
        flags = packing.IS_IGNORING_EOS if golden["ignore_eos"][step] else 0
        flags |= packing.IS_FRESH if step == 0 else 0
        drawn += sampler.draw(scores, np.array([at]), flags=flags, history_places=step % 10)
        sampler.remember(drawn[-1], step % 10)  # ours forgets an end, and this trace goes on after some
    assert drawn == golden["unif_tokens"][:NUM_STEPS].tolist()


def test_random_scores() -> None:
    random = np.random.default_rng(3)
    scores = torch.from_numpy(random.normal(size=(24, NUM_IDS)) * random.uniform(0, 6, size=(24, 1))).float()
    scores[::4] = scores[::4].round()  # ties
    uniforms = random.random((24, 2))
    history = scores.topk(10).indices.numpy()  # the likeliest: most draws are repeated
    history[::3] = -1
    ignore_eos = random.random(24) < 0.5
    sampler = KernelSampler(SMALL, num_slots=24, device="cpu")
    sampler.set_history(history)
    drawn = sampler.draw(scores, uniforms, flags=flags_of(ignore_eos))
    expected = RepetitionAwareSampler(SamplingConfig(), SMALL).sample(
        scores.clone(),
        history=torch.from_numpy(history),
        ignore_eos=torch.from_numpy(ignore_eos),
        uniforms=torch.from_numpy(uniforms),
    )
    assert drawn == expected.tolist()


@pytest.mark.parametrize("num_highest", [0, 20, 100])
def test_more_equal_scores_than_candidates(num_highest: int) -> None:
    """Among equal ones the lowest ids are drawn."""
    scores = torch.zeros(9, NUM_IDS)
    scores[:, 5 : 5 + num_highest] = 1e-3
    uniforms = np.stack([np.linspace(0.01, 0.99, 9), np.full(9, 0.5)], 1)
    drawn = KernelSampler(SMALL, num_slots=9, device="cpu").draw(scores, uniforms, flags=packing.IS_FRESH)
    expected = RepetitionAwareSampler(SamplingConfig(), SMALL).sample(
        scores.clone(),
        history=torch.full((9, 10), -1),
        ignore_eos=torch.zeros(9, dtype=torch.bool),
        uniforms=torch.from_numpy(uniforms),
    )
    assert drawn == expected.tolist()


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_scores_that_are_not_finite_concern_only_their_row() -> None:
    scores = torch.randn(3, NUM_IDS, generator=torch.Generator().manual_seed(0))
    uniforms = np.array([[0.3, 0.6]] * 3)
    sampler = KernelSampler(SMALL, num_slots=3, device="cpu")
    good = sampler.draw(scores, uniforms, flags=packing.IS_FRESH)
    scores[1] = torch.nan
    drawn = sampler.draw(scores, uniforms, flags=packing.IS_FRESH)
    assert drawn[::2] == good[::2]
    assert 0 <= drawn[1] < NUM_IDS


def test_what_goes_into_the_history() -> None:
    scores = torch.full((4, NUM_IDS), -30.0)
    scores[[0, 1, 2, 3], [7, SMALL.eos_id, SMALL.eos_id, 7]] = 0.0
    sampler = KernelSampler(SMALL, num_slots=4, device="cpu")
    flags = np.array([0, 0, packing.COUNTS_AS_FILL, packing.IS_FORCED_FILL]) | packing.IS_FRESH
    drawn = sampler.draw(scores, np.full((4, 2), 0.5), flags=flags, history_places=np.arange(4))
    assert drawn == [7, SMALL.eos_id, SMALL.eos_id, 7]
    assert sampler.body.last_token[:4].tolist() == drawn
    draws = sampler.body.draws
    assert isinstance(draws, RepetitionAwareDraws)
    entries = [draws.history[slot, slot].item() for slot in range(4)]
    assert entries == [7, -1, SMALL.fill_id, SMALL.fill_id], "an end is not remembered"
    assert (draws.history[:4] == -1).sum() == 4 * (draws.history.shape[1] - 1) + 1


@pytest.mark.parametrize("sampling", [PenaltySamplingConfig(), PenaltySamplingConfig(1.0, 0.7, 20, 2.0)])
def test_by_repetition_penalty(sampling: PenaltySamplingConfig) -> None:
    random = np.random.default_rng(5)
    scores = torch.from_numpy(random.normal(size=(24, NUM_IDS)) * random.uniform(0, 6, size=(24, 1))).float()
    scores[::4] = scores[::4].round()  # ties
    scores[::3] -= 4  # few are positive
    uniforms = random.random((24, 2))
    fed = random.random((24, NUM_IDS)) < 0.3
    ignore_eos = random.random(24) < 0.5
    sampler = KernelSampler(SMALL, num_slots=24, device="cpu", sampling=sampling)
    sampler.set_fed(fed)
    drawn = sampler.draw(scores, uniforms, flags=flags_of(ignore_eos))
    expected = RepetitionPenaltySampler(sampling, SMALL).sample(
        scores.clone(),
        seen=torch.from_numpy(fed),
        ignore_eos=torch.from_numpy(ignore_eos),
        uniforms=torch.from_numpy(uniforms),
    )
    assert drawn == expected.tolist()
    assert sampler.body.last_token[:24].tolist() == drawn


def test_more_candidates_than_a_kernel_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="top_k is 65; the CUDA runner takes at most 64"):
        KernelSampler(SMALL, num_slots=1, device="cpu", sampling=PenaltySamplingConfig(top_k=65))


@pytest.mark.parametrize("sampling", [SamplingConfig(), PenaltySamplingConfig()])
def test_a_step_ahead_draws_nothing_after_an_end(sampling: Sampling) -> None:
    """A reading of growing text goes on after it with other words: what it remembers must be what it has said."""
    scores = torch.full((3, NUM_IDS), -30.0)
    scores[:, 7] = 0.0
    sampler = KernelSampler(SMALL, num_slots=3, device="cpu", sampling=sampling)
    sampler.body.last_token[:3] = torch.tensor([SMALL.eos_id, SMALL.eos_id, 9])
    flags = np.array([packing.GOES_ON, 0, packing.GOES_ON]) | packing.IS_FRESH
    assert sampler.draw(scores, np.full((3, 2), 0.5), flags=flags) == [SMALL.eos_id, 7, 7]
    draws = sampler.body.draws
    if isinstance(draws, RepetitionAwareDraws):
        assert [sorted(set(row.tolist())) for row in draws.history[:3]] == [[-1], [-1, 7], [-1, 7]]
