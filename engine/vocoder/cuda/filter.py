"""The seam inside the vocoder on CUDA: what computes the filter, from a call's mel frames and spectra to its frames.

Mel frames, and spectra behind their margin, lie in the workspace's `mel` and `spectra`; what comes out belongs into
`frames`, behind its own margin.
"""

from typing import Protocol

from voicegate.engine.vocoder.cuda.buffers import BufferSpec, Workspace


class NetworkFilter(Protocol):
    """Called in a capture: it launches on the current CUDA stream, allocates nothing that lasts and waits for nothing.

    What streams carry from call to call is its own, by slot, or in buffers with tails.
    """

    @property
    def specs(self) -> list[BufferSpec]:
        """Buffers that it wants in the workspaces."""

    def prepare(self, space: Workspace) -> None:
        """Before the first call with this workspace; never in a capture."""

    def begin(self, space: Workspace) -> None:
        """`mel` is there: what needs no spectra may be launched."""

    def finish(self, space: Workspace) -> None:
        """`spectra` are there: `frames` afterwards, and the streams' own state moved on."""
