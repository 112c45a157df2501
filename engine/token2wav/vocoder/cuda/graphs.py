"""The vocoder's CUDA graphs: one per bucket, captured before the first stream and replayed ever after."""

from collections.abc import Callable

import torch

Bucket = tuple[int, int]  # streams, frames


class VocoderGraphs:
    """The graphs share the buffers that they compute in: replay them on one stream, one after the other."""

    def __init__(self) -> None:
        self._graphs: dict[Bucket, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self._graphs)

    def capture(self, bucket: Bucket, work: Callable[[], None]) -> None:
        """`work` must have run before, so that everything that it launches is compiled and loaded."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        # Not torch.cuda.graph(): it collects garbage and empties the allocator's cache at every capture.
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._graphs[bucket] = graph

    def replay(self, bucket: Bucket) -> None:
        graph = self._graphs.get(bucket)
        if graph is None:
            raise RuntimeError(
                f"no vocoder graph of {bucket[0]} streams and {bucket[1]} frames: call capture() before the first job"
            )
        graph.replay()
