"""Repetition-aware sampling as one distribution: what RepetitionAwareSampler draws from, in two draws, in one.

With q the nucleus, p the full distribution and R the window, P(x) is q(x) [x not in R] + the sum over the nucleus' r in
R of q(r) p(x) / (1 - p(r)) [x is not r]. So a package that draws for itself can be handed its logarithm.
"""

import math

import torch

from voicegate.engine.llm.torch.sampler import BestIds, mask_eos
from voicegate.engine.model.config import SamplingConfig


class RepetitionAwareMixture:
    def __init__(
        self,
        sampling: SamplingConfig,
        *,
        speech_token_size: int,
        num_speech_rows: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self._sampling = sampling
        self._min_repeats = math.ceil(sampling.window * sampling.tau_r)
        self._ignored_id = speech_token_size
        self._best = BestIds(num_speech_rows, device=device)

    def probabilities(self, scores: torch.Tensor, *, history: torch.Tensor, ignore_eos: torch.Tensor) -> torch.Tensor:
        """[B, num_speech_rows] float64. Arguments as of RepetitionAwareSampler.sample; `scores` is overwritten."""
        mask_eos(scores, self._ignored_id, ignore_eos)
        ids = self._best(scores.softmax(-1), self._sampling.top_k)
        full = scores.double().softmax(-1)
        full_of_ids = full.gather(1, ids)
        before = full_of_ids.cumsum(-1) - full_of_ids
        nucleus = full_of_ids.masked_fill(before >= self._sampling.top_p, 0.0)
        nucleus /= nucleus.sum(-1, keepdim=True)
        is_repeated = (history[:, None, :] == ids[:, :, None]).sum(-1) >= self._min_repeats
        # By repeated candidate: the part that all ids but itself share by `full`. Where nothing is left there is none.
        others = (1 - full_of_ids).clamp_min_(torch.finfo(torch.float64).tiny)
        redrawn = torch.where(is_repeated, nucleus / others, 0.0)
        mixed = full * redrawn.sum(-1, keepdim=True)
        return mixed.scatter_add_(1, ids, nucleus.masked_fill(is_repeated, 0.0) - full_of_ids * redrawn).clamp_min_(0.0)
