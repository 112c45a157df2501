"""Top-k and top-p sampling with a repetition penalty, batched: what TensorRT-LLM serves CosyVoice2 with.

The order is Hugging Face's: penalty, temperature, top-k, top-p within what is left. Randomness as in `sampler`.
"""

import torch

from voicegate.engine.llm.torch.sampler import BestIds, Draw, inverse_cdf, mask_eos
from voicegate.engine.model.config import LlmConfig, PenaltySamplingConfig


class RepetitionPenaltySampler:
    def __init__(
        self,
        sampling: PenaltySamplingConfig,
        config: LlmConfig,
        *,
        device: torch.device | str = "cpu",
        draw: Draw = inverse_cdf,
    ) -> None:
        self._sampling = sampling
        self._draw = draw
        self._first_special_id = config.speech_token_size
        self._top_k = min(sampling.top_k, config.num_speech_rows)
        self._best = BestIds(config.num_speech_rows, device=device)

    def nucleus(self, scores: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Candidates of each row: ids [B, top_k] int64 and weights [B, top_k] float32, 0 beyond the nucleus.

        Most probable first, equal ones by ascending id; a candidate is in while those before it have less than top_p
        of what all top_k have. `scores` [B, num_speech_rows] float32; `seen` [B, num_speech_rows] bool.
        """
        sampling = self._sampling
        penalty = sampling.repetition_penalty
        penalised = torch.where(scores > 0, scores / penalty, scores * penalty)
        probabilities = (torch.where(seen, penalised, scores) / sampling.temperature).softmax(-1)
        ids = self._best(probabilities, self._top_k)
        weights = probabilities.gather(1, ids)
        cumulative = weights.cumsum(-1, dtype=torch.float64)
        is_beyond = cumulative - weights >= sampling.top_p * cumulative[:, -1:]
        return ids, weights.masked_fill_(is_beyond, 0.0)

    def sample(
        self,
        scores: torch.Tensor,
        *,
        seen: torch.Tensor,
        ignore_eos: torch.Tensor,
        uniforms: torch.Tensor,
    ) -> torch.Tensor:
        """Draw one id per row: [B] int64. `seen`: what was fed already; the others as RepetitionAwareSampler.sample."""
        mask_eos(scores, self._first_special_id, ignore_eos)
        ids, weights = self.nucleus(scores, seen)
        drawn = ids.gather(1, self._draw(weights, uniforms[:, 0])[:, None])
        return drawn[:, 0]
