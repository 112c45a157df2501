"""LlmRunner on our own decoder: continuous batching over static slots, with torch's operations.

Owns the weights, the cache and the sampler's history; what to feed and what a token means is each sequence's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.llm.backend import InvalidRequest, SequenceOutput, SequenceRequest, UnknownSequence
from voicegate.engine.llm.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.model import LlmModel
from voicegate.engine.llm.requests import check_text_ids, growing, make_sequence, streaming
from voicegate.engine.llm.runner import FinishedStep, LaunchedStep
from voicegate.engine.llm.sampler import RepetitionAwareSampler, seed_key, uniforms
from voicegate.engine.llm.sequence import BistreamPolicy, Feed, Growing, LlmSequence, SequenceState, Table
from voicegate.engine.model.config import LlmConfig, SamplingConfig

_NO_ID = -1  # in a history that is not full yet


@dataclass(slots=True)
class _Row:
    """One live sequence and the slot that it holds."""

    sequence_id: int
    sequence: LlmSequence
    slot: int


_Work = tuple[_Row, Feed]  # a sequence and what this step feeds it


class TorchLlmRunner:
    """See LlmRunner for the promises. Not thread-safe: one thread calls it."""

    graphs = NOTHING_TO_CAPTURE

    def __init__(
        self,
        config: LlmConfig,
        sampling: SamplingConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        num_slots: int,
        max_positions: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        policy: BistreamPolicy = BistreamPolicy.ROBUST,
        packs_half_weights: bool = True,
    ) -> None:
        """`max_positions` per slot: prompt, text and speech of one sequence. Raises WeightsError."""
        self._config = config
        self._policy = policy
        self._device = torch.device(device)
        self._model = LlmModel(config, state_dict, device=device, dtype=dtype, packs_half_weights=packs_half_weights)
        self._first_row = {Table.TEXT: 0, Table.SPEECH: self._model.first_speech_row}
        self._cache = KvCache(
            config,
            num_slots=num_slots,
            max_positions=min(max_positions, config.max_positions),
            device=device,
            dtype=dtype,
        )
        self._sampler = RepetitionAwareSampler(sampling, config, device=device)
        # Per slot: what its sequence decoded last, as a ring; its random stream and how far that has been read.
        self._history = np.full((num_slots, sampling.window), _NO_ID, dtype=np.int64)
        self._seed_keys = np.zeros(num_slots, dtype=np.uint64)
        self._num_sampled = np.zeros(num_slots, dtype=np.uint64)
        self._rows: dict[int, _Row] = {}

    @property
    def num_free_slots(self) -> int:
        return self._cache.num_free_slots

    def add(self, request: SequenceRequest) -> None:
        if request.sequence_id in self._rows:
            raise InvalidRequest(f"sequence {request.sequence_id} is alive already")
        sequence = make_sequence(self._config, request, self._policy)
        slot = self._cache.allocate()
        self._history[slot] = _NO_ID
        self._seed_keys[slot] = seed_key(request.seed)
        self._num_sampled[slot] = 0
        self._rows[request.sequence_id] = _Row(request.sequence_id, sequence, slot)

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        row = self._rows.get(sequence_id)
        if row is None:
            return
        check_text_ids(self._config, text_ids)
        streaming(sequence_id, row.sequence).push_text(text_ids)

    def end_text(self, sequence_id: int) -> None:
        row = self._rows.get(sequence_id)
        if row is not None:
            streaming(sequence_id, row.sequence).end_text()

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        row = self._rows.get(sequence_id)
        if row is None:
            return
        check_text_ids(self._config, text_ids)
        sequence = growing(sequence_id, row.sequence)
        sequence.read(tuple(text_ids), until=until)
        if sequence.feed is not None and sequence.feed.num_kept is not None:
            self._cache.lengths[row.slot] = sequence.feed.num_kept

    def abort(self, sequence_id: int) -> None:
        row = self._rows.pop(sequence_id, None)
        if row is not None:
            self._cache.free(row.slot)

    def is_runnable(self, sequence_id: int) -> bool:
        row = self._rows.get(sequence_id)
        return row is not None and row.sequence.state is not SequenceState.WAITING

    def launch(self, sequence_ids: Sequence[int]) -> LaunchedStep:
        return FinishedStep(self.step(sequence_ids))

    @torch.inference_mode()
    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        rows = self._rows_to_step(sequence_ids)
        errors: dict[int, str] = {}
        work: list[_Work] = []
        for row in rows:
            if row.sequence.feed is None:
                continue  # ended by itself before anything was fed
            if self._has_room(row, row.sequence.feed):
                work.append((row, row.sequence.feed))
            else:
                positions = self._cache.max_positions
                errors[row.sequence_id] = f"text and speech need more than the {positions} positions of an LLM slot"
        tokens = self._sample(work, self._forward(work)) if work else {}
        return [self._output(row, tokens, errors.get(row.sequence_id)) for row in rows]

    def _rows_to_step(self, sequence_ids: Sequence[int]) -> list[_Row]:
        wrong = [sequence_id for sequence_id in sequence_ids if not self.is_runnable(sequence_id)]
        if wrong:
            raise UnknownSequence(f"these sequences have ended, never were or wait for text: {wrong}")
        if len(set(sequence_ids)) != len(sequence_ids):
            raise UnknownSequence(f"a sequence is named twice: {list(sequence_ids)}")
        return [self._rows[sequence_id] for sequence_id in sequence_ids]

    def _has_room(self, row: _Row, feed: Feed) -> bool:
        return self._cache.lengths[row.slot] + len(feed.items) <= self._cache.max_positions

    def _forward(self, work: list[_Work]) -> torch.Tensor:
        """Feed everyone's feed; [len(work), hidden] at each one's last position."""
        spans = [Span(row.slot, self._cache.lengths[row.slot], len(feed.items)) for row, feed in work]
        fed = [self._first_row[table] + id_ for _, feed in work for table, id_ in feed.items]
        embeddings = self._model.embed(torch.tensor(fed, device=self._device))
        hidden = self._model.forward(embeddings, RaggedAttention(self._cache, spans))
        for span in spans:
            self._cache.lengths[span.slot] += span.length
        if len(fed) == len(work):
            return hidden
        lengths = torch.tensor([span.length for span in spans], device=self._device)
        return hidden[lengths.cumsum(0) - 1]

    def _sample(self, work: list[_Work], hidden: torch.Tensor) -> dict[int, int | None]:
        """Sequence id -> its new token, None for a forced fill. Reads the device once."""
        wanted = [index for index, (_, feed) in enumerate(work) if not feed.is_forced_fill]
        tokens: dict[int, int | None] = {row.sequence_id: None for row, _ in work}
        if not wanted:
            return tokens
        if len(wanted) < len(work):
            hidden = hidden[wanted]
            work = [work[index] for index in wanted]
        slots = [row.slot for row, _ in work]
        drawn = self._sampler.sample(
            self._model.logits(hidden),
            history=self._to_device(self._history[slots]),
            ignore_eos=torch.tensor([feed.ignore_eos for _, feed in work], device=self._device),
            forbids_end=torch.tensor([feed.forbids_end for _, feed in work], device=self._device),
            uniforms=self._to_device(uniforms(self._seed_keys[slots], self._num_sampled[slots])),
        )
        self._num_sampled[slots] += np.uint64(1)
        for (row, _), token in zip(work, drawn.tolist(), strict=True):
            tokens[row.sequence_id] = token
        return tokens

    def _to_device(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)

    def _output(self, row: _Row, tokens: Mapping[int, int | None], error: str | None) -> SequenceOutput:
        """Tell the row's sequence what was sampled, and the caller what came of it."""
        sequence = row.sequence
        emitted: tuple[int, ...] = ()
        if row.sequence_id in tokens:
            num_decoded = len(sequence.decoded)
            token = sequence.advance(tokens[row.sequence_id])
            if len(sequence.decoded) > num_decoded:
                self._history[row.slot, num_decoded % self._history.shape[1]] = sequence.decoded[-1]
            emitted = () if token is None else (token,)
        error = error or sequence.failure
        is_truncated = sequence.state is SequenceState.TRUNCATED
        is_final = is_truncated or sequence.state is SequenceState.FINISHED
        if is_final or error:
            self.abort(row.sequence_id)
        is_paused = isinstance(sequence, Growing) and sequence.state is SequenceState.WAITING
        return SequenceOutput(row.sequence_id, emitted, is_final, is_truncated, error, is_paused)
