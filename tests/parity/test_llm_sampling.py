"""Repetition-aware sampling against upstream's traces: candidates, both sources of randomness, order of ties."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.support.golden import load_arrays, name_keyed_generator
from tests.unit.engine.llm.support import golden_llm_config
from voicegate.engine.llm.torch.sampler import Draw, RepetitionAwareSampler, inverse_cdf
from voicegate.engine.model.config import SamplingConfig

GOLDEN = load_arrays("ras.npz")
CONFIG = golden_llm_config()
TOP_K = SamplingConfig().top_k
NUM_STEPS = 60


def scores(step: int) -> torch.Tensor:
    return torch.from_numpy(GOLDEN["logits"][GOLDEN["logits_index"][step]])[None].log_softmax(-1)


def run_trace(draw: Draw) -> tuple[list[int], list[int]]:
    """Tokens and branches (1: redrawn) of the golden 60 steps, two calls of `draw` where a token was redrawn."""
    num_draws = 0

    def counted(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        nonlocal num_draws
        num_draws += 1
        return draw(weights, uniforms)

    sampler = RepetitionAwareSampler(SamplingConfig(), CONFIG, draw=counted)
    decoded: list[int] = []
    branches = []
    for step in range(NUM_STEPS):
        before = num_draws
        history = [*decoded[-10:], *[-1] * 10][:10]
        drawn = sampler.sample(
            scores(step),
            history=torch.tensor([history]),
            ignore_eos=torch.tensor([bool(GOLDEN["ignore_eos"][step])]),
            uniforms=torch.zeros(1, 2, dtype=torch.float64),
        )
        decoded.append(int(drawn))
        branches.append(num_draws - before - 1)
    return decoded, branches


def test_uniform_trace() -> None:
    random = name_keyed_generator("ras.uniform")
    used: list[float] = []

    def draw(weights: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        used.append(random.random())
        return inverse_cdf(weights, torch.tensor(used[-1:], dtype=torch.float64))

    tokens, branches = run_trace(draw)
    assert tokens == GOLDEN["unif_tokens"].tolist()
    assert branches == GOLDEN["unif_branch"].tolist()
    assert used == GOLDEN["unif_used"].tolist()


def test_torch_trace() -> None:
    generator = torch.Generator().manual_seed(2024)

    def draw(weights: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        if weights.shape[1] == TOP_K:  # the candidates; what is beyond the nucleus is 0 here and absent upstream
            weights = weights[:, : int((weights > 0).sum())]
        return weights.multinomial(1, replacement=True, generator=generator)[:, 0]

    tokens, branches = run_trace(draw)
    assert tokens == GOLDEN["torch_tokens"].tolist()
    assert branches == GOLDEN["torch_branch"].tolist()


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_nucleus(index: int, ignore_eos: bool) -> None:
    row = scores(index)
    if ignore_eos:
        row[:, CONFIG.speech_token_size] = -torch.inf
    candidates, weights = RepetitionAwareSampler(SamplingConfig(), CONFIG).nucleus(row)
    count = int((weights > 0).sum())
    name = f"nucleus{index}_ign{int(ignore_eos)}"
    assert candidates[0, :count].tolist() == GOLDEN[f"{name}.ids"].tolist()
    expected: npt.NDArray[Any] = GOLDEN[f"{name}.probs"]
    np.testing.assert_allclose(weights[0, :count], expected, rtol=1e-5)


def test_ties_come_in_ascending_order_of_ids() -> None:
    row = torch.full((1, CONFIG.num_speech_rows), -20.0)
    row[0, GOLDEN["tie.ids_expected"]] = 1.0
    sampling = SamplingConfig(top_p=1.0)
    candidates, _ = RepetitionAwareSampler(sampling, CONFIG).nucleus(row)
    assert candidates[0, :5].tolist() == GOLDEN["tie.ids_expected"].tolist()
    assert candidates[0, 5:].tolist() == list(range(TOP_K - 5))  # equal too, and lowest first
