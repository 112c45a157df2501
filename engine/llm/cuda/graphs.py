"""The decoder's calls in CUDA graphs, one for each bucket of rows and of samples, all captured at start-up.

`is_eager` runs the same kernels at the same padded shapes without graphs.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import partial
from itertools import product

import torch

from voicegate.engine.device.cuda_graphs import GraphSet, bucket_for
from voicegate.engine.llm.cuda.body import DecoderBody


class Call(Enum):
    ROWS = "rows"  # feed rows
    SAMPLES = "samples"  # draw from rows that were fed
    STEP = "step"  # both, for as many rows as samples


class BucketedBody:
    """A DecoderBody at a few fixed sizes, on one CUDA stream."""

    def __init__(
        self,
        body: DecoderBody,
        *,
        row_buckets: Sequence[int],
        num_slots: int,
        stream: torch.cuda.Stream | None,
        is_eager: bool,
    ) -> None:
        """`stream` is None only on a CPU, where Triton's interpreter runs the kernels; then `is_eager`."""
        self._body = body
        self._stream = stream
        self._row_buckets = sorted(row_buckets)
        self._sample_buckets = self._row_buckets[: bisect_left(self._row_buckets, num_slots) + 1]
        self._graphs = None if is_eager or stream is None else GraphSet(stream)

    @property
    def max_rows(self) -> int:
        return self._row_buckets[-1]

    @property
    def max_samples(self) -> int:
        return self._sample_buckets[-1]

    @property
    def num_graphs(self) -> int:
        return len(self._graphs) if self._graphs is not None else 0

    @property
    def num_launches(self) -> int:
        """CUDA graphs launched so far; 0 where there are none."""
        return self._graphs.num_launches if self._graphs is not None else 0

    def padded(self, num_rows: int, num_samples: int) -> tuple[int, int]:
        """How many records of each a call with so many reads; those beyond must be padding."""
        sample_bucket = bucket_for(self._sample_buckets, num_samples) if num_samples else 0
        if num_rows == num_samples:
            return sample_bucket, sample_bucket
        return bucket_for(self._row_buckets, num_rows), sample_bucket

    def run(self, num_rows: int, num_samples: int) -> None:
        """Feed and draw `padded` numbers of records, on the current stream."""
        if num_rows == num_samples:
            self._call(Call.STEP, num_rows)
            return
        self._call(Call.ROWS, num_rows)
        if num_samples:
            self._call(Call.SAMPLES, num_samples)

    def on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    @property
    def num_buckets(self) -> int:
        return len(self._keys())

    def compile(self, advance: Callable[[], None] = lambda: None) -> None:
        """Run every bucket once, with padding alone; `advance` after each."""
        with self.on_stream():
            self._body.fill_with_padding()
            for key in self._keys():
                self._perform(*key)
                advance()

    def capture(self, report: Callable[[str], None]) -> None:
        """Compile every kernel and capture every graph; nothing is compiled or captured afterwards."""
        started_s = time.perf_counter()
        self.compile()  # after another thread's too: libraries make their workspaces for each thread
        if self._graphs is not None:
            torch.cuda.synchronize()
            with self.on_stream():
                for key in self._keys():
                    self._graphs.capture(key, partial(self._perform, *key))
            torch.cuda.synchronize()
        report(f"LLM: {self.num_graphs} CUDA graphs in {time.perf_counter() - started_s:.1f} s")

    def _keys(self) -> list[tuple[Call, int]]:
        """The largest first: the others fit into its memory."""
        sizes = {Call.ROWS: self._row_buckets, Call.SAMPLES: self._sample_buckets, Call.STEP: self._sample_buckets}
        return [key for call, buckets in sizes.items() for key in product([call], buckets)][::-1]

    def _call(self, call: Call, size: int) -> None:
        if self._graphs is None:
            self._perform(call, size)
        else:
            self._graphs.replay((call, size))

    def _perform(self, call: Call, size: int) -> None:
        if call is not Call.SAMPLES:
            self._body.run(size)
        if call is not Call.ROWS:
            self._body.sample(size)
