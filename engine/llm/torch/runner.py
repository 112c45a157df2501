"""LlmRunner on torch's operations: continuous batching over static slots.

Owns the weights, the cache and what the sampler remembers of each slot. A small model's decodes on a CPU are a call of
C each, where that can be had (engine/llm/cpu).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch

from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.device.lanes import HOST_LANE, Lane
from voicegate.engine.device.one_thread import OneThread
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.cpu.decoder import ONE_THREADS_PRODUCTS, decoder_of
from voicegate.engine.llm.feed import Feed
from voicegate.engine.llm.runner import Live, LlmRunner
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel, num_products
from voicegate.engine.llm.torch.slot_samplers import slot_sampler
from voicegate.engine.model.config import LlmConfig, Sampling

_Work = tuple[Live, Feed]  # a sequence and what this step feeds it


class TorchLlmRunner(LlmRunner):
    """Not thread-safe: one thread calls it."""

    graphs = NOTHING_TO_CAPTURE

    def __init__(
        self,
        config: LlmConfig,
        sampling: Sampling,
        state_dict: Mapping[str, torch.Tensor],
        *,
        num_slots: int,
        max_positions: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        lane: Lane = HOST_LANE,
        has_kernel: bool = True,
    ) -> None:
        """`max_positions` per slot: prompt, text and speech of one sequence. Raises WeightsError.

        `has_kernel` is the off switch of CpuDecoder, which is used where it can be.
        """
        super().__init__(config, lane, num_slots=num_slots, max_positions=max_positions)
        self._device = torch.device(device)
        is_cpu = self._device.type == "cpu"
        self._num_lines_of_one_thread = ONE_THREADS_PRODUCTS // num_products(config) if is_cpu else 0
        self._model = LlmModel(config, state_dict, device=device, dtype=dtype)
        self._cache = KvCache(
            config,
            num_slots=num_slots,
            max_positions=self._max_positions,
            device=device,
            dtype=dtype,
        )
        self._decoder = decoder_of(config, state_dict, self._cache) if has_kernel else None
        self._score = self._model.logits if self._decoder is None else self._decoder.logits
        self._sampler = slot_sampler(sampling, config, num_slots=num_slots, device=self._device)

    def add(self, request: SequenceRequest) -> None:
        super().add(request)
        self._sampler.begin(self._lives[request.sequence_id].slot)

    @torch.inference_mode()
    def _begin(self, lives: Sequence[Live]) -> Callable[[], list[SequenceOutput]]:
        errors: dict[int, str] = {}
        work: list[_Work] = []
        for live in lives:
            feed = live.sequence.feed
            if feed is None:
                continue  # ended by itself before anything was fed
            error = self._lack_of_room(live, len(feed.rows))
            if error is None:
                work.append((live, feed))
            else:
                errors[live.sequence_id] = error
        lengths = [len(feed.rows) for _, feed in work]
        num_lines = sum(length for length in lengths if self._decoder is None or length > 1)  # of torch's
        with OneThread() if num_lines <= self._num_lines_of_one_thread else nullcontext():
            tokens = self._sample(work, self._forward(work)) if work else {}
        made = [self._output(live, self._advance(live, tokens), error=errors.get(live.sequence_id)) for live in lives]
        return lambda: made

    def _forward(self, work: list[_Work]) -> torch.Tensor:
        """Feed everyone's feed; [len(work), hidden] at each one's last position."""
        lengths = self._slots.lengths
        spans = [Span(live.slot, int(lengths[live.slot]), len(feed.rows)) for live, feed in work]
        fed = np.concatenate([feed.rows for _, feed in work], dtype=np.int64)
        for live, feed in work:
            self._sampler.note_fed(live.slot, feed.rows)
        hidden = self._feed(spans, self._model.embed(torch.from_numpy(fed).to(self._device)))
        for span in spans:
            lengths[span.slot] += span.length
        return hidden

    def _feed(self, spans: list[Span], embeddings: torch.Tensor) -> torch.Tensor:
        """[N, hidden] of all spans' lines -> [len(spans), hidden] at each one's last line."""
        if self._decoder is None:
            return self._feed_by_torch(spans, embeddings)
        ones = [index for index, span in enumerate(spans) if span.length == 1]
        slots, positions = [spans[index].slot for index in ones], [spans[index].start for index in ones]
        if len(ones) == len(spans):
            return self._decoder.forward(embeddings, slots, positions)
        if not ones:
            return self._feed_by_torch(spans, embeddings)
        parts = torch.split(embeddings, [span.length for span in spans])
        longer = [index for index, span in enumerate(spans) if span.length > 1]
        hidden = embeddings.new_empty(len(spans), embeddings.shape[1])
        hidden[ones] = self._decoder.forward(torch.cat([parts[index] for index in ones]), slots, positions)
        hidden[longer] = self._feed_by_torch([spans[i] for i in longer], torch.cat([parts[i] for i in longer]))
        return hidden

    def _feed_by_torch(self, spans: list[Span], embeddings: torch.Tensor) -> torch.Tensor:
        hidden = self._model.forward(embeddings, RaggedAttention(self._cache, spans))
        if len(embeddings) == len(spans):
            return hidden
        ends = torch.tensor([span.length for span in spans], device=self._device).cumsum(0)
        return hidden[ends - 1]

    def _sample(self, work: list[_Work], hidden: torch.Tensor) -> dict[int, int | None]:
        """Sequence id -> its new token, None for a forced fill. Reads the device once."""
        wanted = [index for index, (_, feed) in enumerate(work) if not feed.is_forced_fill]
        tokens: dict[int, int | None] = {live.sequence_id: None for live, _ in work}
        if not wanted:
            return tokens
        if len(wanted) < len(work):
            hidden = hidden[wanted]
            work = [work[index] for index in wanted]
        slots = np.array([live.slot for live, _ in work])
        drawn = self._sampler.sample(
            self._score(hidden),
            slots,
            ignore_eos=torch.tensor([feed.ignore_eos for _, feed in work], device=self._device),
            uniforms=torch.from_numpy(self._slots.draw(slots)).to(self._device),
        )
        for (live, _), token in zip(work, drawn.tolist(), strict=True):
            tokens[live.sequence_id] = token
        return tokens

    def _advance(self, live: Live, tokens: Mapping[int, int | None]) -> tuple[int, ...]:
        """Tell the sequence what was sampled for it, if anything was; what of that is speech."""
        if live.sequence_id not in tokens:
            return ()
        sequence = live.sequence
        num_decoded = len(sequence.decoded)
        token = sequence.advance(tokens[live.sequence_id])
        if len(sequence.decoded) > num_decoded:
            self._sampler.note_decoded(live.slot, num_decoded, sequence.decoded[-1])
        return () if token is None else (token,)
