"""How long a renderer's calls take, measured before it has streams: with every row busy, in graphs of their own."""

from collections.abc import Sequence
from typing import Final

import torch

from voicegate.engine.vocoder.cuda.renderer import CudaRenderer

_NUM_WARM_RUNS: Final = 5
# Higher -> less noise; lower -> a shorter start.
_NUM_RUNS: Final = 30


@torch.inference_mode()
def call_ms(renderer: CudaRenderer, buckets: Sequence[tuple[int, int]]) -> list[float]:
    """Time of a call in each bucket (streams, frames). Needs a GPU; alone on it."""
    work = renderer.trial(buckets)
    torch.cuda.synchronize()  # what was loaded lies on another stream
    work.capture()
    found = []
    with work.on_stream():
        for bucket in buckets:
            renderer.occupy(bucket)
            for _ in range(_NUM_WARM_RUNS):
                work.run(bucket)
            started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            started.record()
            for _ in range(_NUM_RUNS):
                work.run(bucket)
            ended.record()
            ended.synchronize()
            found.append(started.elapsed_time(ended) / _NUM_RUNS)
    return found
