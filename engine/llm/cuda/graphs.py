"""The decoder's calls at a few fixed sizes, replayed from CUDA graphs: buckets of lines and of samples.

Eager ones run the same kernels at the same padded shapes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from itertools import product

import torch

from voicegate.engine.device.cuda_graphs import BucketedWork, bucket_for
from voicegate.engine.llm.cuda.body import DecoderBody


class Call(Enum):
    LINES = "lines"  # feed lines
    SAMPLES = "samples"  # draw from lines that were fed
    STEP = "step"  # both, for as many lines as samples


class BucketedBody:
    """A DecoderBody at a few fixed sizes, on one CUDA stream."""

    def __init__(
        self,
        body: DecoderBody,
        *,
        line_buckets: Sequence[int],
        num_slots: int,
        stream: torch.cuda.Stream | None,
        is_eager: bool,
    ) -> None:
        """`stream` is None only on a CPU, where Triton's interpreter runs the kernels; then `is_eager`."""
        self._body = body
        self._line_buckets = sorted(line_buckets)
        self._sample_buckets = self._line_buckets[: bisect_left(self._line_buckets, num_slots) + 1]
        sizes = {Call.LINES: self._line_buckets, Call.SAMPLES: self._sample_buckets, Call.STEP: self._sample_buckets}
        keys = [key for call, buckets in sizes.items() for key in product([call], buckets)][::-1]
        self.graphs = BucketedWork(self._work, keys, pad=self._pad, stream=stream, is_eager=is_eager or stream is None)

    @property
    def line_buckets(self) -> Sequence[int]:
        return self._line_buckets

    @property
    def max_lines(self) -> int:
        return self._line_buckets[-1]

    @property
    def max_samples(self) -> int:
        return self._sample_buckets[-1]

    def padded(self, num_lines: int, num_samples: int) -> tuple[int, int]:
        """How many records of each a call with so many reads; those beyond must be padding."""
        sample_bucket = bucket_for(self._sample_buckets, num_samples) if num_samples else 0
        if num_lines == num_samples:
            return sample_bucket, sample_bucket
        return bucket_for(self._line_buckets, num_lines), sample_bucket

    def run(self, num_lines: int, num_samples: int) -> None:
        """Feed and draw `padded` numbers of records, on the current stream."""
        if num_lines == num_samples:
            self.graphs.run((Call.STEP, num_lines))
            return
        self.graphs.run((Call.LINES, num_lines))
        if num_samples:
            self.graphs.run((Call.SAMPLES, num_samples))

    def on_stream(self) -> AbstractContextManager[object]:
        return self.graphs.on_stream()

    def _work(self, key: tuple[Call, int]) -> None:
        call, size = key
        if call is not Call.SAMPLES:
            self._body.run(size)
        if call is not Call.LINES:
            self._body.sample(size)

    def _pad(self, key: tuple[Call, int]) -> None:
        self._body.fill_with_padding()
