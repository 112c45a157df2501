"""CUDA graphs by key: captured before the first work, replayed ever after. Flow, vocoder and LLM each have a set.

A graph has fixed shapes, so they are captured for a few sizes, the buckets, and work is padded to the next of them.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise

import torch


class GraphNotCaptured(RuntimeError):
    def __init__(self, key: Hashable) -> None:
        super().__init__(f"no CUDA graph was captured for {key}: call capture() once before the first batch")


class GraphSet:
    """All graphs share one memory pool for what they compute on the way: replay them on one stream at a time."""

    def __init__(self, stream: torch.cuda.Stream | None = None) -> None:
        """`stream` to capture on; None: one of its own."""
        self.num_launches = 0
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = stream if stream is not None else torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self._graphs)

    def capture(self, key: Hashable, work: Callable[[], None]) -> None:
        """`work` must have run before, so that everything that it needs is compiled and loaded."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        # Not torch.cuda.graph(): it collects garbage and empties the allocator's cache at every capture.
        with torch.cuda.stream(self._stream):
            # thread_local: other threads may use CUDA meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._graphs[key] = graph

    def replay(self, key: Hashable) -> None:
        """Raises GraphNotCaptured."""
        graph = self._graphs.get(key)
        if graph is None:
            raise GraphNotCaptured(key)
        graph.replay()
        self.num_launches += 1


def check_buckets(name: str, buckets: Sequence[int]) -> None:
    """Raises ValueError by `name`."""
    if not buckets or buckets[0] < 1 or any(small >= large for small, large in pairwise(buckets)):
        raise ValueError(f"{name} are {buckets}; they must be positive and ascending")


def bucket_for(buckets: Sequence[int], number: int) -> int:
    """The smallest that holds `number`. Raises ValueError if none does."""
    index = bisect_left(buckets, number)
    if index == len(buckets):
        raise ValueError(f"{number} do not fit in the largest bucket that is captured, {buckets[-1]}")
    return buckets[index]
