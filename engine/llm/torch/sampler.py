"""Repetition-aware sampling of speech tokens, batched, without a host read on a GPU.

Follows upstream's ras_sampling (cosyvoice/utils/common.py; VALL-E 2, arXiv:2406.05370). Randomness comes in as two
uniforms per row (slots.py), so that a row does not depend on its batch.
"""

import math
from collections.abc import Callable

import torch

from voicegate.engine.model.config import LlmConfig, SamplingConfig

# weights [B, N] float32, not normalised; uniforms [B] float64 in (0, 1) -> index [B] int64
Draw = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def inverse_cdf(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Entries of the float64 running sum of weights / sum(weights) that are below the uniform; a Draw."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    targets = uniforms[:, None] * cumulative[:, -1:]
    # The clamp is for scores that are not finite: no row may index beyond its end, a device-wide fault on a GPU.
    return torch.searchsorted(cumulative, targets)[:, 0].clamp_(max=weights.shape[1] - 1)


def mask_eos(scores: torch.Tensor, first_special_id: int, ignore_eos: torch.Tensor) -> None:
    """In place, before anything is drawn: what `RepetitionAwareSampler.sample` says of the flag."""
    scores.select(1, first_special_id).masked_fill_(ignore_eos, -torch.inf)


class BestIds:
    """The heads of rows of probabilities, sorted as upstream sorts them: equal ones by ascending id."""

    def __init__(self, num_ids: int, *, device: torch.device | str) -> None:
        self._radix = 1 << num_ids.bit_length()
        # Higher for lower ids: makes every key distinct.
        self._tie_breaker = torch.arange(self._radix - 1, self._radix - 1 - num_ids, -1, device=device)

    def __call__(self, probabilities: torch.Tensor, count: int) -> torch.Tensor:
        """[B, ids] float32 -> [B, count] int64."""
        # Bits of non-negative floats order as the floats do, so one topk of integer keys is a stable sort's head.
        keys = probabilities.view(torch.int32).to(torch.int64).mul_(self._radix).add_(self._tie_breaker)
        best = keys.topk(count).values
        return (self._radix - 1) - (best & (self._radix - 1))


class RepetitionAwareSampler:
    """Nucleus sampling; a token that came up within the last `window` is redrawn from all the others, no nucleus."""

    def __init__(
        self,
        sampling: SamplingConfig,
        config: LlmConfig,
        *,
        device: torch.device | str = "cpu",
        draw: Draw = inverse_cdf,
    ) -> None:
        self._sampling = sampling
        self._draw = draw
        self._ignored_id = config.speech_token_size
        self._min_repeats = math.ceil(sampling.window * sampling.tau_r)
        self._best = BestIds(config.num_speech_rows, device=device)

    def nucleus(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Candidates of each row: ids [B, top_k] int64 and probabilities [B, top_k] float32, 0 beyond the nucleus.

        Most probable first, equal ones by ascending id; a candidate is in while those before it sum up to less
        than top_p. `scores` [B, num_speech_rows] float32, up to a constant per row.
        """
        probabilities = scores.softmax(-1)
        ids = self._best(probabilities, self._sampling.top_k)
        weights = probabilities.gather(1, ids)
        before = weights.cumsum(-1, dtype=torch.float64).sub_(weights)
        return ids, weights.masked_fill_(before >= self._sampling.top_p, 0.0)

    def sample(
        self,
        scores: torch.Tensor,
        *,
        history: torch.Tensor,
        ignore_eos: torch.Tensor,
        uniforms: torch.Tensor,
    ) -> torch.Tensor:
        """Draw one id per row: [B] int64 on the device of `scores`.

        scores [B, num_speech_rows] float32, logits or log-probabilities, **overwritten**; history [B, window] int64,
        the ids drawn last in any order, -1 where there are fewer; ignore_eos [B] bool; uniforms [B, 2] float64.
        Where `ignore_eos` is set, id `speech_token_size` cannot come up. Upstream meant eos, but in CosyVoice3 that id
        is sos and eos is the next one: the flag does not keep a sequence from ending, here as there.
        """
        mask_eos(scores, self._ignored_id, ignore_eos)
        ids, weights = self.nucleus(scores)
        first = ids.gather(1, self._draw(weights, uniforms[:, 0])[:, None])
        is_repeated = (history == first).sum(-1, keepdim=True) >= self._min_repeats
        if scores.is_cpu and not is_repeated.any():
            return first[:, 0]
        scores.scatter_(1, first, scores.gather(1, first).masked_fill_(is_repeated, -torch.inf))
        redrawn = self._draw(scores.softmax(-1), uniforms[:, 1])
        return torch.where(is_repeated[:, 0], redrawn, first[:, 0])
