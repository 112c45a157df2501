"""Where work runs and how its end is known: a CPU has done it when the call returns, a GPU does it on a stream.

A lane keeps its work in order. The LLM has one, and flow and vocoder have one together, so that on a GPU a decode step
runs beside an Euler step. What the LLM writes the flow gets through the host; but for the first tokens of a single
text, which are `Expected`: these it copies itself.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Tensors that are made inside without naming a device are made on this one. Inside a lane's `active` it is so
    too."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Mark(Protocol):
    """A point behind all work that its lane was given before."""

    @property
    def lane(self) -> object:
        """One for all marks of a lane, which reaches them in their order."""

    @property
    def is_reached(self) -> bool: ...

    def seconds_since(self, earlier: "Mark") -> float:
        """Between two marks of a lane that are reached."""

    def wait(self) -> None:
        """Returns once it is reached; other Python threads run meanwhile."""


class Lane(Protocol):
    def active(self) -> AbstractContextManager[object]:
        """Work launched inside runs on this lane."""

    def mark(self) -> Mark:
        """Behind everything launched so far."""

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in host memory (or the tensor itself, if it is there); valid once a later mark is reached."""


class _HostMark:
    lane = None
    is_reached = True

    def __init__(self) -> None:
        self._at_s = time.perf_counter()

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, _HostMark)
        return self._at_s - earlier._at_s

    def wait(self) -> None:
        pass


class HostLane:
    """A CPU: everything is done when the call returns."""

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> Mark:
        return _HostMark()

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


HOST_LANE = HostLane()


class _CudaMark:
    def __init__(self, event: torch.cuda.Event, lane: object) -> None:
        self.event = event
        self.lane = lane

    @property
    def is_reached(self) -> bool:
        reached: bool = self.event.query()  # type: ignore[no-untyped-call]
        return reached

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, _CudaMark)
        return float(earlier.event.elapsed_time(self.event)) / 1000

    def wait(self) -> None:
        self.event.synchronize()


class _OnStream:
    """`torch.cuda.stream` without what that asks when it is made: some 12 us an entry, and a step has three or four."""

    __slots__ = ("_before", "_own_before", "_stream")

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._before = torch.cuda.current_stream()
        is_elsewhere = self._before.device_index != self._stream.device_index
        self._own_before = torch.cuda.current_stream(self._stream.device) if is_elsewhere else None
        torch.cuda.set_stream(self._stream)

    def __exit__(self, *_: object) -> None:
        if self._own_before is not None:
            torch.cuda.set_stream(self._own_before)
        torch.cuda.set_stream(self._before)


class CudaLane:
    def __init__(self, device: torch.device, *, urgency: int) -> None:
        """0, 1, ...: the most urgent lane's kernels are scheduled first as multiprocessors become free.

        A graph's kernels keep the urgency of the stream that it was captured on, wherever it is replayed.
        """
        lowest, highest = torch.cuda.Stream.priority_range()  # type: ignore[call-arg]
        priority = max(lowest - urgency, highest)  # CUDA's most urgent is the lowest number
        self.stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]

    def active(self) -> AbstractContextManager[object]:
        return _OnStream(self.stream)

    def mark(self) -> Mark:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self.stream)
        return _CudaMark(event, self)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        # torch's pinned allocator keeps what it once has taken from the driver, so this costs no allocation.
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor, non_blocking=True)
