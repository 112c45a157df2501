"""The model's own sampling inside vLLM's engine process: log-probabilities in place of logits, and vLLM draws.

vLLM imports this module by name in its own process, and hands every request's `extra_args` over. It needs the newest
output ids, so asynchronous scheduling is off.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from voicegate.engine.backends.vllm.mixture import RepetitionAwareMixture
from voicegate.engine.backends.vllm.request_args import KEY, RequestArgs
from voicegate.engine.model.config import SamplingConfig

_NO_ID: Final = -1  # in a history that is not full yet


@dataclass(slots=True, eq=False)
class _Row:
    args: RequestArgs
    output_ids: list[int]  # vLLM's own list, which grows

    @property
    def ignores_end(self) -> bool:
        return self.args.num_spoken + len(self.output_ids) < self.args.min_tokens

    def history(self, window: int) -> list[int]:
        drawn = [*self.args.last_spoken, *(id_ - self.args.first_speech_id for id_ in self.output_ids[-window:])]
        return [*[_NO_ID] * (window - len(drawn)), *drawn[-window:]]


class RepetitionAwareProcessor(LogitsProcessor):  # type: ignore[misc] # the package is not here for mypy
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._is_pinned = is_pin_memory
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """In vLLM's order: removed, added, moved."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, output_ids in batch_update.added:
            self._rows.pop(index, None)
            given = (params.extra_args or {}).get(KEY)
            if given is not None:
                self._rows[index] = _Row(RequestArgs(**given), output_ids)
        for one, other, direction in batch_update.moved:
            moved, replaced = self._rows.pop(one, None), self._rows.pop(other, None)
            if moved is not None:
                self._rows[other] = moved
            if replaced is not None and direction == MoveDirectionality.SWAP:
                self._rows[one] = replaced

    @torch.inference_mode()
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """`logits` [requests, rows of the checkpoint], in place."""
        if not self._rows:
            return logits
        rows = sorted(self._rows.items())
        args = rows[0][1].args  # one model's: all have the same sizes
        speech = slice(args.first_speech_id, args.first_speech_id + args.num_speech_rows)
        table = self._on_device([[index, row.ignores_end, *row.history(args.window)] for index, row in rows])
        where, history = table[:, 0], table[:, 2:]
        sampling = SamplingConfig(top_p=args.top_p, top_k=args.top_k, window=args.window, tau_r=args.tau_r)
        mixture = _mixture(sampling, args.speech_token_size, args.num_speech_rows, self._device)
        probabilities = mixture.probabilities(
            logits[where, speech].float(),
            history=history,
            ignore_eos=table[:, 1].bool(),
        )
        logits[where] = -torch.inf
        logits[where, speech] = probabilities.log().to(logits.dtype)
        return logits

    def _on_device(self, table: list[list[int]]) -> torch.Tensor:
        """In one copy that waits for nothing: one from unpinned memory would wait for the whole step before it."""
        host = torch.tensor(table, dtype=torch.int64, pin_memory=self._is_pinned)
        return host.to(self._device, non_blocking=True)


@cache
def _mixture(
    sampling: SamplingConfig, speech_token_size: int, num_speech_rows: int, device: torch.device
) -> RepetitionAwareMixture:
    return RepetitionAwareMixture(
        sampling, speech_token_size=speech_token_size, num_speech_rows=num_speech_rows, device=device
    )
