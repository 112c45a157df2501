"""CUDA streams beside the current one, for branches that meet again; they become branches of a captured graph."""

from collections.abc import Callable

import torch


class SideStreams:
    def __init__(self, num_streams: int, *, device: torch.device, priority: int = 0) -> None:
        """With none, work that is forked runs where it stands. `priority`: CUDA's, of the stream they branch off."""
        self._streams = [
            torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
            for _ in range(num_streams)
        ]

    def fork(self, number: int, work: Callable[[], None]) -> None:
        """Run `work` after what the current stream has been given, beside what it is given next."""
        if not self._streams:
            work()
            return
        self._streams[number].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._streams[number]):
            work()

    def join(self, number: int) -> None:
        """What the current stream is given next waits for that work."""
        if self._streams:
            torch.cuda.current_stream().wait_stream(self._streams[number])
