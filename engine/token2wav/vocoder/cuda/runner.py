"""The vocoder on CUDA: the same seam as runner.VocoderRunner, and a call is one small copy and one graph."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch.backends import cudnn

from voicegate.engine import units
from voicegate.engine.device.cuda_graphs import GraphSet
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.weights import WeightsError
from voicegate.engine.token2wav.vocoder.cuda.buffers import Workspace
from voicegate.engine.token2wav.vocoder.cuda.calls import PlannedRow, group_calls, plan_rows
from voicegate.engine.token2wav.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.token2wav.vocoder.cuda.network import CudaNetwork
from voicegate.engine.token2wav.vocoder.cuda.rows import idle_row
from voicegate.engine.token2wav.vocoder.cuda.staging import RowStaging
from voicegate.engine.token2wav.vocoder.runner import VocoderJob, VocoderRunner

STFT_SIZE: Final = 16  # the transforms' kernels are written for it
MAX_BLOCKS: Final = 3  # that a launch takes side by side


class CudaVocoderRunner(VocoderRunner):
    """`run` only enqueues on the current CUDA stream, the same one for every call, and its samples are there for what
    is enqueued after it. Mel frames may be strided views; float32 ones on the device are read where they lie.
    """

    def __init__(
        self,
        config: VocoderConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        excitation: torch.Tensor | None = None,
        max_samples: int,
        max_streams: int,
        device: torch.device,
        cuda: VocoderCudaConfig | None = None,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """As VocoderRunner; `capture` must be called before the first job unless `cuda.use_graphs` is off.

        `stream`: the one that jobs will run on, whose priority the graphs' kernels get; None: any, without priority.
        """
        self._cuda = cuda if cuda is not None else VocoderCudaConfig()
        self._stream = stream
        _check_config(config)
        super().__init__(
            config,
            state_dict,
            excitation=excitation,
            max_samples=max_samples,
            max_streams=max_streams,
            device=device,
        )

    def _build(self, config: VocoderConfig, weights: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
        self.network = CudaNetwork(
            config,
            weights,
            self._noise,
            self._cuda,
            max_streams=self._max_streams,
            device=self._device,
            priority=self._stream.priority if self._stream is not None else 0,
        )
        self._staging = RowStaging(self.network.rows)
        self._graphs = GraphSet(self._stream) if self._cuda.use_graphs else None
        # By streams and frames, as the graphs: they compute in the same buffers, one after the other.
        self._workspaces: dict[tuple[int, int], Workspace] = {
            (num_streams, num_frames): self.network.workspace(num_streams, num_frames)
            for num_streams in self._cuda.batch_buckets
            for num_frames in self._cuda.frame_buckets
        }

    @property
    def state(self) -> torch.Tensor:
        """[slots + 1, words] int32: what streams carry from call to call."""
        return self.network.state

    @property
    def num_graphs(self) -> int:
        return len(self._graphs) if self._graphs is not None else 0

    @property
    def num_launches(self) -> int:
        return self._graphs.num_launches if self._graphs is not None else 0

    @property
    def num_buckets(self) -> int:
        return len(self._workspaces)

    @torch.inference_mode()
    def compile(self, advance: Callable[[], None] = lambda: None) -> None:
        """Run every bucket once, with idle rows alone, so that its kernels are compiled; `advance` after each."""
        for space in self._workspaces.values():
            self._staging.send([idle_row(self._max_streams)] * space.num_streams)
            self.network.run(space)
            advance()

    @torch.inference_mode()
    def capture(self, report: Callable[[str], None]) -> None:
        """Compile every kernel and capture every bucket's graph; nothing is compiled or captured later."""
        started_s = time.monotonic()
        self.compile()  # after another thread's too: cuBLAS's handles and workspaces are a thread's own
        compiled_s = time.monotonic()
        if self._graphs is not None:
            for bucket, space in self._workspaces.items():
                self._graphs.capture(bucket, lambda space=space: self.network.run(space))  # type: ignore[misc]
        captured_s = time.monotonic()
        report(
            f"vocoder: {len(self._workspaces)} buckets run in {compiled_s - started_s:.1f} s, "
            f"{self.num_graphs} graphs captured in {captured_s - compiled_s:.1f} s, "
            f"{self.network.num_bytes / 2**20:.0f} MiB of buffers"
        )

    def _reset(self, slot: int) -> None:
        """A stream's first call reads nothing of its slot."""

    def _run_checked(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        mels = [job.mel.to(self._device, torch.float32) for job in jobs]
        plans = [
            plan_rows(index, job, mel, look_right=self._look_right, max_frames=self._cuda.max_frames)
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
        num_streams = self._cuda.batch_bucket(len(call))
        num_frames = self._cuda.frame_bucket(max(planned.row.num_frames for planned in call))
        space = self._workspaces[num_streams, num_frames]
        idle = [idle_row(self._max_streams)] * (num_streams - len(call))
        self._staging.send([planned.row for planned in call] + idle)
        if self._graphs is None:
            self.network.run(space)
        else:
            self._graphs.replay((num_streams, num_frames))
        return self.network.samples(space)[: len(call)].clone()

    def _final_part(self, planned: PlannedRow) -> slice:
        """Of a row's samples: those that belong to the signal and are final."""
        held = self._num_held_samples
        end = planned.row.num_frames * units.SAMPLES_PER_FRAME + (held if planned.row.is_final else 0)
        return slice(held if planned.row.is_first else 0, end)

    def _joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        if len(parts) == 1:
            return parts[0]
        return torch.cat(tuple(parts)) if parts else torch.zeros(0, device=self._device)

    def render_offline(self, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
        # cuDNN's default for float32 is tf32, which a yardstick cannot have.
        with cudnn.flags(enabled=True, allow_tf32=False):
            return super().render_offline(mel, is_final=is_final)


def _check_config(config: VocoderConfig) -> None:
    """What the kernels take for granted. Raises WeightsError."""
    checks = {
        f"n_fft is {STFT_SIZE}": config.stft_size == STFT_SIZE,
        f"a stage has at most {MAX_BLOCKS} resblocks": len(config.resblock_kernels) <= MAX_BLOCKS,
        "all resblocks have the same dilations": len(set(config.resblock_dilations)) == 1,
    }
    broken = [rule for rule, holds in checks.items() if not holds]
    if broken:
        raise WeightsError("this vocoder cannot be run by the CUDA kernels; it must hold that " + "; ".join(broken))
