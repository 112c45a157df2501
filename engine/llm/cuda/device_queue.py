"""The way of a launch to the device and back: pinned records there, kernels, pinned tokens back, an event behind."""

from collections import deque

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.graphs import BucketedBody
from voicegate.engine.llm.cuda.packing import Words, padding_line, padding_sample

# Launches whose tokens nobody has asked for yet; beyond that a launch waits for the oldest. Each holds 30 KB.
_NUM_BUFFERS = 16


class Transfer:
    """One launch's host memory. Its tokens are valid once `is_done`."""

    def __init__(self, body: DecoderBody, *, is_cuda: bool) -> None:
        self.words = torch.zeros(body.layout.num_words, dtype=torch.int32, pin_memory=is_cuda)
        self.tokens = torch.zeros(body.layout.max_samples, dtype=torch.int32, pin_memory=is_cuda)
        self._tokens_view: npt.NDArray[np.int32] = self.tokens.numpy()
        self.event = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]
        self.num_samples = 0

    @property
    def is_done(self) -> bool:
        return self.event is None or self.event.query()  # type: ignore[no-untyped-call]

    def wait(self) -> npt.NDArray[np.int32]:
        """The tokens of its samples, in order: a copy."""
        if self.event is not None:
            self.event.synchronize()
        return self._tokens_view[: self.num_samples].copy()


class DeviceQueue:
    def __init__(self, body: DecoderBody, buckets: BucketedBody, *, is_cuda: bool) -> None:
        self._body = body
        self._buckets = buckets
        self._padding_line = padding_line(body.padding_slot)
        self._padding_sample = padding_sample(body.padding_slot)
        self._idle = deque(Transfer(body, is_cuda=is_cuda) for _ in range(_NUM_BUFFERS))

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def give_back(self, transfer: Transfer) -> None:
        """Its device work has ended, its tokens were taken."""
        self._idle.append(transfer)

    def send(self, lines: Words, samples: Words) -> Transfer:
        """Run these records: at most `max_lines` and `max_samples` of the buckets. Needs `has_idle`. Does not wait."""
        transfer = self._idle.popleft()
        transfer.num_samples = len(samples)
        num_lines, num_samples = self._buckets.padded(len(lines), len(samples))
        layout, words = self._body.layout, transfer.words.numpy()
        placed = layout.lines(words, num_lines)
        placed[: len(lines)] = lines
        placed[len(lines) :] = self._padding_line
        placed = layout.samples(words, num_samples)
        placed[: len(samples)] = samples
        placed[len(samples) :] = self._padding_sample
        begin, end = layout.span(num_lines, num_samples)
        with self._buckets.on_stream():
            self._body.work[begin:end].copy_(transfer.words[begin:end], non_blocking=True)
            self._buckets.run(num_lines, num_samples)
            if len(samples):
                transfer.tokens[: len(samples)].copy_(self._body.tokens[: len(samples)], non_blocking=True)
            if transfer.event is not None:
                transfer.event.record()
        return transfer
