"""The vocoder on CUDA: a call is one small copy and one graph.

It only launches, on the current CUDA stream, the same one for every call. Mel frames may be strided views; float32 ones
on the device are read where they lie.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch

from voicegate.engine.device.cuda_graphs import BucketedWork
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.weights import WeightsError
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.cuda.buffers import Workspace
from voicegate.engine.vocoder.cuda.calls import PlannedRow, group_calls, plan_rows
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.cuda.kernel_filter import KernelFilter
from voicegate.engine.vocoder.cuda.network import CudaNetwork, NetworkFilter
from voicegate.engine.vocoder.cuda.rows import RowStaging, busy_row, idle_row
from voicegate.engine.vocoder.model import VocoderModel

STFT_SIZE: Final = 16  # the transforms' kernels are written for it
MAX_BLOCKS: Final = 3  # that a launch takes side by side

_Bucket = tuple[int, int]  # streams, frames


class CudaRenderer:
    """Implements Renderer."""

    def __init__(
        self,
        model: VocoderModel,
        cuda: VocoderCudaConfig,
        *,
        max_streams: int,
        stream: torch.cuda.Stream | None = None,
        filter_of: Callable[[torch.Tensor], NetworkFilter] | None = None,
        name: str = "cuda",
    ) -> None:
        """`stream`: the one that jobs will run on, whose priority the graphs' kernels get; None: any, without priority.

        `filter_of`: makes what computes the filter, given the table of rows; None: our kernels. `name`: theirs.

        Raises WeightsError for a model that the kernels cannot run.
        """
        check_config(model.config)
        self._model = model
        self._cuda = cuda
        self.name = name
        self._stream = stream
        self._idle_slot = max_streams
        priority = stream.priority if stream is not None else 0
        kernels = partial(KernelFilter, model.config, model.weights, cuda, priority=priority)
        self.network = CudaNetwork(
            model.config,
            model.weights,
            model.noise,
            cuda,
            max_streams=max_streams,
            device=model.device,
            filter_of=kernels if filter_of is None else filter_of,
        )
        self._staging = RowStaging(self.network.rows)
        # They compute in the same buffers, one after the other.
        self._workspaces: dict[_Bucket, Workspace] = {
            (num_streams, num_frames): self.network.workspace(num_streams, num_frames)
            for num_streams in reversed(cuda.batch_buckets)
            for num_frames in reversed(cuda.frame_buckets)
        }
        self.graphs = BucketedWork(
            self._work, list(self._workspaces), pad=self._pad, stream=stream, is_eager=not cuda.has_graphs
        )

    def reset(self, slot: int) -> None:
        """A stream's first call reads nothing of its slot."""

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        mels = [job.mel.to(self._model.device, torch.float32) for job in jobs]
        look_right = self._model.config.look_right_frames
        plans = [
            plan_rows(index, job, mel, look_right=look_right, max_frames=self._cuda.max_frames)
            for index, (job, mel) in enumerate(zip(jobs, mels, strict=True))
        ]
        parts: list[list[torch.Tensor]] = [[] for _ in jobs]
        for call in group_calls(plans, self._cuda.max_batch):
            samples = self._launch(call)
            for number, planned in enumerate(call):
                if planned.row.num_frames:
                    parts[planned.job_index].append(samples[number, self._final_part(planned)])
        for job, plan in zip(jobs, plans, strict=True):
            for planned in plan:
                job.stream.num_frames += planned.row.num_frames
                job.stream.num_lookahead = planned.lookahead_after
            job.stream.is_ended = job.is_final
        return [self._joined(each) for each in parts]

    def _launch(self, call: Sequence[PlannedRow]) -> torch.Tensor:
        """[streams, samples]: a copy, since the next call writes where this one did."""
        num_frames = max(planned.row.num_frames for planned in call)
        bucket = self._cuda.batch_bucket(len(call)), self._cuda.frame_bucket(num_frames)
        idle = [idle_row(self._idle_slot)] * (bucket[0] - len(call))
        self._staging.send([planned.row for planned in call] + idle)
        self.graphs.run(bucket)
        return self.network.samples(self._workspaces[bucket])[: len(call)].clone()

    def _final_part(self, planned: PlannedRow) -> slice:
        row = planned.row
        return self._model.final_part(row.num_frames, is_first=bool(row.is_first), is_final=bool(row.is_final))

    def _joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        if len(parts) == 1:
            return parts[0]
        return torch.cat(tuple(parts)) if parts else torch.zeros(0, device=self._model.device)

    def trial(self, buckets: Sequence[_Bucket]) -> BucketedWork[_Bucket]:
        """The work of some buckets, apart from `graphs`, for measuring it before there are streams."""
        return BucketedWork(
            self._work, buckets, pad=self.occupy, stream=self._stream, is_eager=not self._cuda.has_graphs
        )

    def occupy(self, bucket: _Bucket) -> None:
        """Have every row of the bucket advance by all of its frames, for streams that are nobody's."""
        self._staging.send([busy_row(self._idle_slot, bucket[1])] * bucket[0])

    def _work(self, bucket: _Bucket) -> None:
        self.network.run(self._workspaces[bucket])

    def _pad(self, bucket: _Bucket) -> None:
        self._staging.send([idle_row(self._idle_slot)] * bucket[0])


def check_config(config: VocoderConfig) -> None:
    """Check all that the kernels take for granted. Raises WeightsError."""
    checks = {
        f"n_fft is {STFT_SIZE}": config.stft_size == STFT_SIZE,
        f"a stage has at most {MAX_BLOCKS} resblocks": len(config.resblock_kernels) <= MAX_BLOCKS,
        "all resblocks have the same dilations": len(set(config.resblock_dilations)) == 1,
    }
    broken = [rule for rule, holds in checks.items() if not holds]
    if broken:
        raise WeightsError("this vocoder cannot be run by the CUDA kernels; it must hold that " + "; ".join(broken))
