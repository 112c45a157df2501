"""The model's own sampling inside TensorRT-LLM: a logits processor that draws, and leaves a single id to choose.

Imports the package, and is imported where it is used alone; in worker-process mode by its worker too. It keeps its own
history: what it is told of the tokens lacks the newest, as the next step is launched before they are read.
"""

from functools import cache

import numpy as np
import torch
from tensorrt_llm.sampling_params import LogitsProcessor

from voicegate.engine.backends.legged.legs import Leg
from voicegate.engine.llm.slots import seed_key, uniforms
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import LlmConfig, SamplingConfig

_NO_ID = -1  # in a history that is not full yet
# Finite: what follows in the package normalises, and infinities less infinities are no numbers.
_NEVER = -1e4


class RepetitionAwareProcessor(LogitsProcessor):  # type: ignore[misc] # the package is not here for mypy
    """Processor of one leg; pickled on its way to the executor, so its tensors are made at the first step."""

    def __init__(self, leg: Leg, sampling: SamplingConfig, config: LlmConfig, *, first_speech_id: int) -> None:
        super().__init__()
        self._sampling = sampling
        self._config = config
        self._rows = slice(first_speech_id, first_speech_id + config.num_speech_rows)
        self._min_tokens = leg.min_tokens
        self._num_drawn = len(leg.spoken)
        self._key = seed_key(leg.seed)
        # The last draws, as a ring that the next draw's place follows from.
        self._spoken = [_NO_ID] * sampling.window
        for index, token in enumerate(leg.spoken):
            self._spoken[index % sampling.window] = token
        self._history: torch.Tensor | None = None

    def __call__(
        self,
        req_id: int,
        logits: torch.Tensor,
        token_ids: list[list[int]],
        stream_ptr: int | None,
        client_id: int | None,
    ) -> None:
        """`logits` [..., rows of the checkpoint], in place. Waits for nothing on the device."""
        if stream_ptr is None or not logits.is_cuda:
            self._choose(logits)
            return
        with torch.cuda.stream(torch.cuda.ExternalStream(stream_ptr, device=logits.device)):  # type: ignore[no-untyped-call]
            self._choose(logits)

    @torch.inference_mode()
    def _choose(self, logits: torch.Tensor) -> None:
        device = logits.device
        if self._history is None:
            self._history = torch.tensor([self._spoken], device=device)
        drawn = uniforms(np.array([self._key]), np.array([self._num_drawn], np.uint64))
        token = _sampler(self._sampling, self._config, device).sample(
            logits.flatten(0, -2)[:, self._rows].float(),
            history=self._history,
            ignore_eos=torch.full((1,), self._num_drawn < self._min_tokens, device=device),
            uniforms=torch.from_numpy(drawn).to(device, non_blocking=True),
        )
        self._history[:, self._num_drawn % self._sampling.window] = token
        self._num_drawn += 1
        logits.fill_(_NEVER)
        logits.view(-1, logits.shape[-1]).scatter_(1, token[:, None] + self._rows.start, 0.0)


@cache
def _sampler(sampling: SamplingConfig, config: LlmConfig, device: torch.device) -> RepetitionAwareSampler:
    return RepetitionAwareSampler(sampling, config, device=device)
