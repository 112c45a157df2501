"""Compilation and capture of a model's runner before its first work: equal questions to all three. No torch."""

from collections.abc import Callable
from typing import Final, Protocol


class Capturable(Protocol):
    @property
    def num_buckets(self) -> int:
        """Calls of `advance` in all; 0: there is nothing to compile."""

    @property
    def num_graphs(self) -> int:
        """CUDA graphs captured so far; constant after `capture`."""

    @property
    def num_launches(self) -> int:
        """CUDA graphs launched so far."""

    def compile(self, advance: Callable[[], None] = ...) -> None:
        """Run every bucket once, with padding alone: its kernels are compiled and loaded then."""

    def capture(self) -> None:
        """`compile`, which is quick the second time, then capture every graph. Nothing is compiled or captured later.

        Alone on the device: no other thread may launch, allocate or compile meanwhile.
        """


class _NothingToCapture:
    num_buckets = num_graphs = num_launches = 0

    def compile(self, advance: Callable[[], None] = lambda: None) -> None:
        pass

    def capture(self) -> None:
        pass


NOTHING_TO_CAPTURE: Final = _NothingToCapture()  # of what torch launches anew at every call, as on a CPU
