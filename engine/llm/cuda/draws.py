"""The sampling kernels with what they remember of the slots on the device: one of the two, as the model is sampled."""

import math
from typing import Protocol, assert_never

import torch
import triton

from voicegate.engine.llm.cuda import packing, penalty_kernel, sampling_kernel
from voicegate.engine.model.config import LlmConfig, PenaltySamplingConfig, Sampling, SamplingConfig

# A draw compares twice as many candidates with each other, all in registers.
_MAX_TOP_K = 64


class Draws(Protocol):
    """Fixed shapes, and nothing is read back: may be captured. `records` is the work array from its origin on."""

    @property
    def window(self) -> int:
        """Places of the ring that a sample's record points into."""

    def note_fed(self, records: torch.Tensor, last_token: torch.Tensor, num_lines: int) -> None:
        """Before the network runs on these lines."""

    def draw(
        self,
        scores: torch.Tensor,
        records: torch.Tensor,
        last_token: torch.Tensor,
        tokens: torch.Tensor,
        num_samples: int,
    ) -> None:
        """A token for each of the first samples of `scores` -> `tokens`, `last_token`."""


def make_draws(
    sampling: Sampling,
    config: LlmConfig,
    *,
    num_slots: int,
    max_samples: int,
    device: torch.device,
    num_warps: int,
) -> Draws:
    """For so many slots, the padding's included."""
    match sampling:
        case SamplingConfig():
            return RepetitionAwareDraws(sampling, config, num_slots, max_samples, device, num_warps)
        case PenaltySamplingConfig():
            return RepetitionPenaltyDraws(sampling, config, num_slots, max_samples, device, num_warps)
        case _:
            assert_never(sampling)


class RepetitionAwareDraws:
    """Remembers what each slot drew last, as a ring."""

    def __init__(
        self,
        sampling: SamplingConfig,
        config: LlmConfig,
        num_slots: int,
        max_samples: int,
        device: torch.device,
        num_warps: int,
    ) -> None:
        self.window = sampling.window
        self.history = torch.zeros(num_slots, triton.next_power_of_2(sampling.window), device=device, dtype=torch.int32)
        self._candidates = _candidates(sampling.top_k, max_samples, device)
        self._constants = {
            **_constants(config, self._candidates, sampling.top_p, sampling.top_k, num_warps),
            "FILL_ID": config.fill_id,
            "WINDOW": sampling.window,
            "HISTORY_STRIDE": self.history.stride(0),
            "MIN_REPEATS": math.ceil(sampling.window * sampling.tau_r),
            "IS_FORCED_FILL": packing.IS_FORCED_FILL,
            "COUNTS_AS_FILL": packing.COUNTS_AS_FILL,
            "IS_FRESH": packing.IS_FRESH,
        }

    def note_fed(self, records: torch.Tensor, last_token: torch.Tensor, num_lines: int) -> None:
        pass

    def draw(
        self,
        scores: torch.Tensor,
        records: torch.Tensor,
        last_token: torch.Tensor,
        tokens: torch.Tensor,
        num_samples: int,
    ) -> None:
        """And -> `history`."""
        sampling_kernel.sample[(num_samples,)](
            scores,
            records,
            last_token,
            self.history,
            tokens,
            self._candidates,
            SCORES_STRIDE=scores.stride(0),
            **self._constants,
        )


class RepetitionPenaltyDraws:
    """Remembers of each slot and speech id which of the slot's sequences, by its number, was fed it last."""

    window = 1

    def __init__(
        self,
        sampling: PenaltySamplingConfig,
        config: LlmConfig,
        num_slots: int,
        max_samples: int,
        device: torch.device,
        num_warps: int,
    ) -> None:
        self.fed_by = torch.zeros(num_slots, config.num_table_rows, device=device, dtype=torch.int32)
        top_k = min(sampling.top_k, config.num_speech_rows)
        self._candidates = _candidates(top_k, max_samples, device)
        self._first_speech_row = config.vocab_size
        self._constants = {
            **_constants(config, self._candidates, sampling.top_p, top_k, num_warps),
            "FED_STRIDE": self.fed_by.stride(0),
            "PENALTY": sampling.repetition_penalty,
            "TEMPERATURE": sampling.temperature,
        }

    def note_fed(self, records: torch.Tensor, last_token: torch.Tensor, num_lines: int) -> None:
        penalty_kernel.note_fed[(num_lines,)](
            records,
            last_token,
            self.fed_by,
            FIRST_SPEECH_ROW=self._first_speech_row,
            FED_STRIDE=self.fed_by.stride(0),
            FIRST_END=self._constants["FIRST_END"],
            ENDS_STOP=self._constants["ENDS_STOP"],
            num_warps=1,
        )

    def draw(
        self,
        scores: torch.Tensor,
        records: torch.Tensor,
        last_token: torch.Tensor,
        tokens: torch.Tensor,
        num_samples: int,
    ) -> None:
        penalty_kernel.sample[(num_samples,)](
            scores,
            records,
            last_token,
            self.fed_by,
            tokens,
            self._candidates,
            SCORES_STRIDE=scores.stride(0),
            **self._constants,
        )


def _constants(
    config: LlmConfig, candidates: torch.Tensor, top_p: float, top_k: int, num_warps: int
) -> dict[str, float | int]:
    """Constants that both kernels are compiled with."""
    return {
        "NUM_IDS": config.num_speech_rows,
        "SPEECH_TOKEN_SIZE": config.speech_token_size,
        "TOP_P": top_p,
        "TOP_K": top_k,
        "BLOCK_IDS": triton.next_power_of_2(config.num_speech_rows),
        "NUM_CANDIDATES": candidates.shape[2],
        "IS_IGNORING_EOS": packing.IS_IGNORING_EOS,
        "GOES_ON": packing.GOES_ON,
        "FIRST_END": config.eos_id if config.stop.is_eos_alone else config.speech_token_size,
        "ENDS_STOP": config.eos_id + 1 if config.stop.is_eos_alone else config.num_speech_rows,
        "num_warps": num_warps,
    }


def _candidates(top_k: int, max_samples: int, device: torch.device) -> torch.Tensor:
    """Raises ValueError for more than the kernels can hold beside each other."""
    if top_k > _MAX_TOP_K:
        raise ValueError(f"sampling.top_k is {top_k}; the CUDA runner takes at most {_MAX_TOP_K}")
    num_candidates = max(64, triton.next_power_of_2(2 * top_k))
    return torch.zeros(max_samples, 2, num_candidates, device=device, dtype=torch.int32)
