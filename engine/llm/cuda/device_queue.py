"""The way of a launch to the device and back: pinned records there, kernels, pinned tokens back, an event behind."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.graphs import BucketedBody
from voicegate.engine.llm.cuda.packing import Words, padding_line, padding_sample
from voicegate.engine.llm.runner import MAX_STEPS_OF_ONE, Live

# Launches whose tokens nobody has asked for yet: all that there may be of one sequence, and what others may have under
# way before. Beyond that a launch would wait for the oldest. Each holds 52 KB.
_NUM_BUFFERS: Final = MAX_STEPS_OF_ONE + 4


@dataclass(frozen=True, slots=True)
class _Views:
    """Views of one launch's memory and the device's, for so many records: to make them takes as long as the launch."""

    lines: Words  # [lines, LINE_WORDS]
    samples: Words  # [samples, SAMPLE_WORDS]
    words: torch.Tensor
    words_on_device: torch.Tensor
    tokens: torch.Tensor  # [samples]
    tokens_on_device: torch.Tensor


class Transfer:
    """One launch's host memory. Its tokens are valid once `is_done`."""

    def __init__(self, body: DecoderBody, *, is_cuda: bool) -> None:
        self._body = body
        self._words = torch.zeros(body.layout.num_words, dtype=torch.int32, pin_memory=is_cuda)
        self._tokens = torch.zeros(body.layout.max_samples, dtype=torch.int32, pin_memory=is_cuda)
        self._tokens_array: Words = self._tokens.numpy()
        self._views: dict[tuple[int, int], _Views] = {}
        self.event = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]
        self.num_samples = 0

    def views(self, num_lines: int, num_samples: int) -> _Views:
        """For a bucket of so many records."""
        views = self._views.get((num_lines, num_samples))
        if views is None:
            layout, array = self._body.layout, self._words.numpy()
            begin, end = layout.span(num_lines, num_samples)
            views = self._views[num_lines, num_samples] = _Views(
                layout.lines(array, num_lines),
                layout.samples(array, num_samples),
                self._words[begin:end],
                self._body.work[begin:end],
                self._tokens[:num_samples],
                self._body.tokens[:num_samples],
            )
        return views

    @property
    def is_done(self) -> bool:
        return self.event is None or self.event.query()  # type: ignore[no-untyped-call]

    def wait(self) -> list[int]:
        """The tokens of its samples, in order."""
        if self.event is not None:
            self.event.synchronize()
        tokens: list[int] = self._tokens_array[: self.num_samples].tolist()
        return tokens


@dataclass(slots=True, eq=False)
class Member:
    """A sequence's part in a step other than a plain decode."""

    sample: int | None = None  # its place among the step's samples; None: it has ended without one
    is_forced_fill: bool = False
    error: str | None = None


@dataclass(slots=True, eq=False)
class CudaStep:
    lives: Sequence[Live]
    members: dict[int, Member]  # by place in `lives`; the others are decodes, whose samples come first, in order
    transfers: list[Transfer] = field(default_factory=list)  # in order; all their samples are the step's
    tokens: list[int] = field(default_factory=list)  # of transfers that are over
    applied: list[SequenceOutput] | None = None


class DeviceQueue:
    def __init__(self, body: DecoderBody, buckets: BucketedBody, *, is_cuda: bool) -> None:
        self._buckets = buckets
        self._padding_line = padding_line(body.padding_slot)
        self._padding_sample = padding_sample(body.padding_slot)
        self._idle = [Transfer(body, is_cuda=is_cuda) for _ in range(_NUM_BUFFERS)]
        for transfer in self._idle:  # of one prompt, for which its device waits
            for num_lines in buckets.line_buckets:
                transfer.views(*buckets.padded(num_lines, 1))

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def give_back(self, transfer: Transfer) -> None:
        """Its device work has ended, its tokens were taken. It is the next to be used: its memory is at hand."""
        self._idle.append(transfer)

    def send(self, lines: Words, samples: Words) -> Transfer:
        """Run these records: at most `max_lines` and `max_samples` of the buckets. Needs `has_idle`. Does not wait."""
        transfer = self._idle.pop()
        try:
            self._send(transfer, lines, samples)
        except BaseException:
            self._idle.insert(0, transfer)  # the last to be used: its copy may be under way, and no event is behind it
            raise
        return transfer

    def _send(self, transfer: Transfer, lines: Words, samples: Words) -> None:
        transfer.num_samples = len(samples)
        num_lines, num_samples = self._buckets.padded(len(lines), len(samples))
        views = transfer.views(num_lines, num_samples)
        views.lines[: len(lines)] = lines
        views.lines[len(lines) :] = self._padding_line
        views.samples[: len(samples)] = samples
        views.samples[len(samples) :] = self._padding_sample
        with self._buckets.on_stream():
            views.words_on_device.copy_(views.words, non_blocking=True)
            self._buckets.run(num_lines, num_samples)
            if num_samples:
                views.tokens.copy_(views.tokens_on_device, non_blocking=True)
            if transfer.event is not None:
                transfer.event.record()
