"""Small work on a CPU, in one thread of torch's: the others would have to be woken for each operation."""

from types import TracebackType

import torch


class OneThread:
    """A context; within another one, of no cost.

    Other threads of Python keep theirs, but for one whose very first operation comes meanwhile: that has one for good.
    """

    __slots__ = ("_num_threads",)

    def __enter__(self) -> None:
        self._num_threads = torch.get_num_threads()
        if self._num_threads > 1:
            torch.set_num_threads(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._num_threads > 1:
            torch.set_num_threads(self._num_threads)
