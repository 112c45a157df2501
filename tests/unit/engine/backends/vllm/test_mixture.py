"""The closed mixture against our sampler: equal distributions, by draws and by every id; and the processor's rows."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.vllm.standin import BatchUpdate, Behaviour, MoveDirectionality, installed
from tests.unit.engine.backends.legged.support import SmallModel
from tests.unit.engine.llm.support import small_llm_config
from voicegate.engine.backends.vllm.mixture import RepetitionAwareMixture
from voicegate.engine.backends.vllm.request_args import KEY, RequestArgs
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import SamplingConfig

CONFIG = small_llm_config()
SAMPLING = SamplingConfig()
NUM_DRAWS = 20_000
ROWS = CONFIG.num_speech_rows
MIXTURE = RepetitionAwareMixture(SAMPLING, speech_token_size=CONFIG.speech_token_size, num_speech_rows=ROWS)


def scores(*, peak: float, seed: int = 1) -> torch.Tensor:
    return torch.randn(1, ROWS, generator=torch.Generator().manual_seed(seed)) * peak


def mixed(of: torch.Tensor, history: torch.Tensor, *, ignores: bool = False) -> torch.Tensor:
    (found,) = MIXTURE.probabilities(of.clone(), history=history, ignore_eos=torch.tensor([ignores]))
    return found


def window(of: torch.Tensor, num_best: int) -> torch.Tensor:
    """The best ids came up a moment ago."""
    history = torch.full((1, SAMPLING.window), -1)
    history[0, :num_best] = of.topk(num_best).indices[0]
    return history


@pytest.mark.parametrize(
    ("peak", "num_recent", "ignores"), [(1.0, 0, False), (1.0, 10, True), (3.0, 4, False), (6.0, 1, False)]
)
def test_it_is_what_our_sampler_draws_from(peak: float, num_recent: int, ignores: bool) -> None:
    of = scores(peak=peak)
    history = window(of, num_recent)
    expected = mixed(of, history, ignores=ignores)
    assert float(expected.sum()) == pytest.approx(1.0)
    drawn = RepetitionAwareSampler(SAMPLING, CONFIG).sample(
        of.repeat(NUM_DRAWS, 1),
        history=history.repeat(NUM_DRAWS, 1),
        ignore_eos=torch.full((NUM_DRAWS,), ignores),
        uniforms=torch.from_numpy(np.random.default_rng(2).random((NUM_DRAWS, 2))),
    )
    counts = torch.bincount(drawn, minlength=ROWS).double()
    wanted = expected * NUM_DRAWS
    assert counts[expected == 0].sum() == 0, "nothing that has no chance"
    is_frequent = wanted >= 5
    chi2 = float(((counts - wanted)[is_frequent] ** 2 / wanted[is_frequent]).sum())
    freedom = int(is_frequent.sum())
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5
    rare = float(wanted[~is_frequent].sum())
    assert abs(float(counts[~is_frequent].sum()) - rare) < 5 * max(rare, 1.0) ** 0.5 + 1


def test_one_that_is_nearly_certain_and_repeated_leaves_it_to_the_others() -> None:
    of = torch.zeros(1, ROWS)
    of[0, 3] = 40.0
    history = torch.full((1, SAMPLING.window), 3)
    found = mixed(of, history)
    assert float(found[3]) == pytest.approx(0.0, abs=1e-9)
    assert found.isfinite().all()


def test_an_end_that_may_not_be_has_no_chance() -> None:
    of = scores(peak=1.0)
    assert float(mixed(of, window(of, 2), ignores=True)[CONFIG.speech_token_size]) == 0


# --- the processor ----------------------------------------------------------------------------------------

FIRST_SPEECH_ID = 50
SPEECH = slice(FIRST_SPEECH_ID, FIRST_SPEECH_ID + ROWS)
NUM_IDS = FIRST_SPEECH_ID + ROWS + 6


@pytest.fixture
def processor() -> Iterator[Any]:
    with installed(Behaviour(SmallModel())):
        from voicegate.engine.backends.vllm.ras_processor import RepetitionAwareProcessor

        yield RepetitionAwareProcessor(None, torch.device("cpu"), False)


def params(*, last: tuple[int, ...] = ()) -> SimpleNamespace:
    args = RequestArgs(
        FIRST_SPEECH_ID,
        CONFIG.speech_token_size,
        ROWS,
        SAMPLING.top_p,
        SAMPLING.top_k,
        SAMPLING.window,
        SAMPLING.tau_r,
        min_tokens=0,
        num_spoken=len(last),
        last_spoken=list(last),
    )
    return SimpleNamespace(extra_args={KEY: args.as_dict()})


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_each_row_has_the_mixture_of_its_own_history_wherever_it_moves(processor: Any) -> None:
    logits = torch.randn(3, NUM_IDS, generator=torch.Generator().manual_seed(3))
    of_speech = logits[:, SPEECH].clone()
    spoken: list[list[int]] = [[], [], []]
    plain = SimpleNamespace(extra_args=None)
    added = [(0, params(last=(1, 2)), None, spoken[0]), (1, plain, None, spoken[1]), (2, params(), None, spoken[2])]
    processor.update_state(BatchUpdate(3, (), added, ()))
    processor.update_state(None)
    spoken[0].append(FIRST_SPEECH_ID + 7)  # vLLM's own list grows

    def expected(row: int, *recent: int) -> torch.Tensor:
        history = torch.tensor([[*recent, *[-1] * (SAMPLING.window - len(recent))]])
        return mixed(of_speech[row : row + 1], history)

    found = processor.apply(logits.clone()).double().exp()
    close(found[0, SPEECH], expected(0, 1, 2, 7))
    assert float(found[0, :FIRST_SPEECH_ID].sum()) == 0
    assert float(found[0, FIRST_SPEECH_ID + ROWS :].sum()) == 0
    torch.testing.assert_close(found[1], logits[1].double().exp())
    close(found[2, SPEECH], expected(2))

    processor.update_state(BatchUpdate(2, [1], (), [(0, 1, MoveDirectionality.UNIDIRECTIONAL)]))
    processor.update_state(BatchUpdate(2, (), (), [(1, 2, MoveDirectionality.SWAP)]))
    found = processor.apply(logits.clone()).double().exp()
    torch.testing.assert_close(found[0], logits[0].double().exp())
    close(found[1, SPEECH], expected(1))
    close(found[2, SPEECH], expected(2, 1, 2, 7))


def test_without_requests_of_ours_nothing_changes(processor: Any) -> None:
    logits = torch.randn(2, NUM_IDS)
    assert processor.apply(logits) is logits
    assert not processor.is_argmax_invariant()
