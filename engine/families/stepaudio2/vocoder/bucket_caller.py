"""The vocoder's calls in fixed buffers: each is one CUDA graph replay, or the same launched eagerly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import torch

from voicegate.engine.device.cuda_graphs import BucketedWork, bucket_for, check_buckets
from voicegate.engine.families.stepaudio2.vocoder.calls import (
    CallBuffers,
    CallPass,
    CallRow,
    CallShape,
    Decode,
    TorchCaller,
    run_batch,
)
from voicegate.engine.families.stepaudio2.vocoder.model import StepAudio2Vocoder

# Rows of calls by our own kernels, whose buffers are laid out for the largest: 1.9 GiB at the released size, as the
# first family's. More -> memory; 16 rows of 112 frames fill a GPU.
KERNEL_ROW_BUCKETS: Final = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class CallConfig:
    """Calls are padded to the next of each. More -> less is computed in vain, and a longer start.

    Raises ValueError naming the one that does not fit.
    """

    # A first chunk; one of 25 tokens behind repeated frames; one of 50, or a stream's last. Longer ones, of slow
    # speech, run without a graph.
    frame_buckets: tuple[int, ...] = (32, 64, 112)
    row_buckets: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    has_graphs: bool = True  # False: the same work launched call by call

    def __post_init__(self) -> None:
        check_buckets("frame_buckets", self.frame_buckets)
        check_buckets("row_buckets", self.row_buckets)


class BucketCaller:
    """Rows of one bucket together, each call a CUDA graph replay, or the same eagerly."""

    def __init__(self, model: StepAudio2Vocoder, config: CallConfig, *, decode: Decode | None = None) -> None:
        """`decode`: of what is in buckets; None for the network's own.

        Raises ValueError for graphs on a device without.
        """
        if config.has_graphs and model.device.type != "cuda":
            raise ValueError(f"CUDA graphs were asked for on {model.device}: set has_graphs=False")
        self.device = model.device
        self._config = config
        self._plain = TorchCaller(model)
        self._pass = CallPass(model, decode)
        storage: dict[str, torch.Tensor] = {}

        def allocate(name: str, shape: tuple[int, ...]) -> torch.Tensor:
            """Takes the largest bucket's memory, which comes first; only one bucket is in use."""
            size = math.prod(shape)
            if name not in storage:
                storage[name] = torch.zeros(size, device=model.device)
            return storage[name][:size].view(shape)

        shapes = [CallShape(*each) for each in product(reversed(config.row_buckets), reversed(config.frame_buckets))]
        self._buffers = {shape: CallBuffers(shape, device=model.device, allocate=allocate) for shape in shapes}
        self.graphs = BucketedWork(
            lambda shape: self._pass.run(self._buffers[shape]),
            shapes,
            pad=lambda shape: self._buffers[shape].fill(()),
            is_eager=not config.has_graphs,
        )

    def run(self, rows: Sequence[CallRow]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        by_bucket: dict[int, list[int]] = {}
        longest = self._config.frame_buckets[-1]
        for index, row in enumerate(rows):
            if row.num_frames <= longest:
                by_bucket.setdefault(bucket_for(self._config.frame_buckets, row.num_frames), []).append(index)
            else:
                (made[index],) = self._plain.run([row])
        most = self._config.row_buckets[-1]
        for num_frames, indices in by_bucket.items():
            for start in range(0, len(indices), most):
                batch = indices[start : start + most]
                buffers = self._buffers[CallShape(bucket_for(self._config.row_buckets, len(batch)), num_frames)]
                run_batch(lambda each: self.graphs.run(each.shape), buffers, rows, batch, made)
        return [made[index] for index in range(len(rows))]
