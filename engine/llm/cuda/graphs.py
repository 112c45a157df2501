"""The decoder's calls in CUDA graphs, one for each bucket of rows and of samples, all captured at start-up.

`is_eager` runs the same kernels at the same padded shapes without graphs.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from itertools import product

import torch

from engine.llm.cuda.body import DecoderBody


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
        self._is_eager = is_eager or stream is None
        self._row_buckets = sorted(row_buckets)
        self._sample_buckets = self._row_buckets[: bisect_left(self._row_buckets, num_slots) + 1]
        self._pool = None if self._is_eager else torch.cuda.graph_pool_handle()
        self._graphs: dict[tuple[Call, int], torch.cuda.CUDAGraph] = {}

    @property
    def max_rows(self) -> int:
        return self._row_buckets[-1]

    @property
    def max_samples(self) -> int:
        return self._sample_buckets[-1]

    @property
    def num_graphs(self) -> int:
        return len(self._graphs)

    def padded(self, num_rows: int, num_samples: int) -> tuple[int, int]:
        """How many records of each a call with so many reads; those beyond must be padding."""
        sample_bucket = _bucket(self._sample_buckets, num_samples) if num_samples else 0
        if num_rows == num_samples:
            return sample_bucket, sample_bucket
        return _bucket(self._row_buckets, num_rows), sample_bucket

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

    def capture(self, report: Callable[[str], None]) -> None:
        """Compile every kernel and capture every graph; nothing is compiled or captured afterwards."""
        started_s = time.perf_counter()
        sizes = {Call.ROWS: self._row_buckets, Call.SAMPLES: self._sample_buckets, Call.STEP: self._sample_buckets}
        keys = [key for call, buckets in sizes.items() for key in product([call], buckets)]
        with self.on_stream():
            self._body.fill_with_padding()
            for key in reversed(keys):  # the largest first: the others fit into its memory
                self._perform(*key)  # compiles, and lets libraries make their workspaces
                if not self._is_eager:
                    torch.cuda.synchronize()
                    self._graphs[key] = self._captured(*key)
        if not self._is_eager:
            torch.cuda.synchronize()
        report(f"LLM: {len(self._graphs)} CUDA graphs in {time.perf_counter() - started_s:.1f} s")

    def _captured(self, call: Call, size: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Other threads may use CUDA meanwhile.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            self._perform(call, size)
        finally:
            graph.capture_end()
        return graph

    def _call(self, call: Call, size: int) -> None:
        if self._is_eager:
            self._perform(call, size)
        else:
            self._graphs[call, size].replay()

    def _perform(self, call: Call, size: int) -> None:
        if call is not Call.SAMPLES:
            self._body.run(size)
        if call is not Call.ROWS:
            self._body.sample(size)


def _bucket(buckets: Sequence[int], number: int) -> int:
    return buckets[bisect_left(buckets, number)]
