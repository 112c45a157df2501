"""Work of a few fixed sizes in CUDA graphs: captured before the first work, replayed ever after.

A graph has fixed shapes, so they are captured for a few sizes, the buckets, and work is padded to the next of them.
"""

import gc
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Generic, TypeVar

import torch

Key = TypeVar("Key", bound=Hashable)


class GraphNotCaptured(RuntimeError):
    def __init__(self, key: Hashable) -> None:
        super().__init__(f"no CUDA graph was captured for {key}: call capture() once before the first batch")


class BucketedWork(Generic[Key]):
    """A Capturable: the same work at a few sizes, each named by a key. Replayed, or launched anew where it is eager.

    All graphs share one memory pool for what they compute on the way: they must run on one stream at a time.
    """

    def __init__(
        self,
        work: Callable[[Key], None],
        keys: Sequence[Key],
        *,
        pad: Callable[[Key], None],
        compiled_keys: Sequence[Key] | None = None,
        stream: torch.cuda.Stream | None = None,
        is_eager: bool,
    ) -> None:
        """`keys`: all there are, the largest first, so that the others' graphs fit into its memory.

        `pad` has a key's work compute padding alone. `compiled_keys` run all kernels that there are; None: all keys
        are needed for that. `stream`: to compile and capture on, of whose priority the graphs' kernels are; None: of
        none. Not `is_eager` needs a CUDA device.
        """
        self.num_launches = 0
        self._work = work
        self._keys = keys
        self._pad = pad
        self._compiled_keys = keys if compiled_keys is None else compiled_keys
        self._stream = stream
        self._is_eager = is_eager
        self._graphs: dict[Key, torch.cuda.CUDAGraph] = {}

    @property
    def num_buckets(self) -> int:
        return len(self._compiled_keys)

    @property
    def num_graphs(self) -> int:
        return len(self._graphs)

    def run(self, key: Key) -> None:
        """On the current stream. Raises GraphNotCaptured."""
        if self._is_eager:
            with torch.inference_mode():  # a replay makes no tensor, and is made hundreds of times a second
                self._work(key)
            return
        graph = self._graphs.get(key)
        if graph is None:
            raise GraphNotCaptured(key)
        graph.replay()
        self.num_launches += 1

    @torch.inference_mode()
    def compile(self, advance: Callable[[], None] = lambda: None) -> None:
        with self.on_stream():
            for key in self._compiled_keys:
                self._pad(key)
                self._work(key)
                advance()

    @torch.inference_mode()
    def capture(self) -> None:
        self.compile()  # after another thread's too: libraries make handles and workspaces for each thread
        if self._is_eager:
            return
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()
        stream = self._stream if self._stream is not None else torch.cuda.Stream()  # type: ignore[no-untyped-call]
        # Not torch.cuda.graph(): it collects garbage and empties the allocator's cache at every capture.
        with torch.cuda.stream(stream), _no_garbage_collected():
            for key in self._keys:
                graph = torch.cuda.CUDAGraph()
                # thread_local: other threads may use CUDA meanwhile.
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    self._work(key)
                finally:
                    graph.capture_end()
                self._graphs[key] = graph
        torch.cuda.synchronize()

    def on_stream(self) -> AbstractContextManager[object]:
        """Work launched inside runs where this was made for; on the current stream where that does not matter."""
        if self._stream is None or torch.cuda.current_stream(self._stream.device) == self._stream:
            return nullcontext()  # to enter it again would take four times as long as to ask
        return torch.cuda.stream(self._stream)


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """To free what another engine of this process has left on the device, amid a capture, would invalidate it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
