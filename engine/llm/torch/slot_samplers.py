"""The samplers of one device with what each remembers of a slot's sequence, behind one protocol."""

from typing import Protocol, assert_never

import numpy as np
import torch

from voicegate.engine.llm.feed import Rows
from voicegate.engine.llm.slots import SlotNumbers
from voicegate.engine.llm.torch.penalty_sampler import RepetitionPenaltySampler
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import LlmConfig, PenaltySamplingConfig, Sampling, SamplingConfig

_NO_ID = -1  # in a history that is not full yet


class SlotSampler(Protocol):
    def begin(self, slot: int) -> None:
        """Another sequence has the slot: forget the last one."""

    def note_fed(self, slot: int, rows: Rows) -> None:
        """All that the sequence is fed, before the draw that follows it."""

    def note_decoded(self, slot: int, place: int, token: int) -> None:
        """Its token of this number, from 0: drawn, or fill."""

    def sample(
        self,
        scores: torch.Tensor,
        slots: SlotNumbers,
        *,
        ignore_eos: torch.Tensor,
        uniforms: torch.Tensor,
    ) -> torch.Tensor:
        """A row for each of the slots; see RepetitionAwareSampler.sample."""


def slot_sampler(sampling: Sampling, config: LlmConfig, *, num_slots: int, device: torch.device) -> SlotSampler:
    match sampling:
        case SamplingConfig():
            return _RepetitionAware(sampling, config, num_slots, device)
        case PenaltySamplingConfig():
            return _RepetitionPenalty(sampling, config, num_slots, device)
        case _:
            assert_never(sampling)


class _RepetitionAware:
    """Remembers what was decoded last, as a ring."""

    def __init__(self, sampling: SamplingConfig, config: LlmConfig, num_slots: int, device: torch.device) -> None:
        self._sampler = RepetitionAwareSampler(sampling, config, device=device)
        self._history = np.full((num_slots, sampling.window), _NO_ID, dtype=np.int64)
        self._device = device

    def begin(self, slot: int) -> None:
        self._history[slot] = _NO_ID

    def note_fed(self, slot: int, rows: Rows) -> None:
        pass

    def note_decoded(self, slot: int, place: int, token: int) -> None:
        self._history[slot, place % self._history.shape[1]] = token

    def sample(
        self,
        scores: torch.Tensor,
        slots: SlotNumbers,
        *,
        ignore_eos: torch.Tensor,
        uniforms: torch.Tensor,
    ) -> torch.Tensor:
        history = torch.from_numpy(self._history[slots]).to(self._device)
        return self._sampler.sample(scores, history=history, ignore_eos=ignore_eos, uniforms=uniforms)


class _RepetitionPenalty:
    """Remembers which speech ids were fed. Text counts for nothing here: no text id can be drawn."""

    def __init__(
        self, sampling: PenaltySamplingConfig, config: LlmConfig, num_slots: int, device: torch.device
    ) -> None:
        self._sampler = RepetitionPenaltySampler(sampling, config, device=device)
        self._seen = np.zeros((num_slots, config.num_table_rows), dtype=np.bool_)
        self._first_speech_row = config.vocab_size
        self._num_ids = config.num_speech_rows
        self._device = device

    def begin(self, slot: int) -> None:
        self._seen[slot] = False

    def note_fed(self, slot: int, rows: Rows) -> None:
        self._seen[slot, rows[rows >= self._first_speech_row] - self._first_speech_row] = True

    def note_decoded(self, slot: int, place: int, token: int) -> None:
        pass  # it is fed before the next draw, unless it is fill, which never is

    def sample(
        self,
        scores: torch.Tensor,
        slots: SlotNumbers,
        *,
        ignore_eos: torch.Tensor,
        uniforms: torch.Tensor,
    ) -> torch.Tensor:
        seen = torch.from_numpy(self._seen[slots, : self._num_ids]).to(self._device)
        return self._sampler.sample(scores, seen=seen, ignore_eos=ignore_eos, uniforms=uniforms)
