"""The filter by our own kernels: a launch for every convolution, its branches beside one another."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.cuda.buffers import BufferSpec, Workspace
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.convolutions import Columns, Convolutions, Epilogue
from voicegate.engine.vocoder.cuda.packing import Packer
from voicegate.engine.vocoder.cuda.stage import CudaStage
from voicegate.engine.vocoder.stft import Synthesis
from voicegate.engine.vocoder.torch.network import POST_SLOPE
from voicegate.engine.vocoder.weights import source_stride


class KernelFilter:
    """See NetworkFilter. All of a stream's state lies in buffers' tails."""

    def __init__(
        self,
        config: VocoderConfig,
        weights: Mapping[str, torch.Tensor],
        cuda: VocoderCudaConfig,
        rows: torch.Tensor,
        *,
        packer: Packer | None = None,
        priority: int = 0,
    ) -> None:
        """`rows`: the table that calls go by. `packer`: None for convolutions that look to the left.

        `priority`: CUDA's, of the stream that calls run on.
        """
        self._config = config
        self._rows = rows
        self._dtype = PRECISIONS[cuda.precision].dtype
        self._spectra_per_frame = units.SAMPLES_PER_FRAME // config.stft_hop
        packer = packer or Packer(weights, PRECISIONS[cuda.precision])
        self._pre = packer.conv(["conv_pre"])
        self.stages = [CudaStage(config, stage, packer, cuda) for stage in range(len(config.upsample_rates))]
        self._post = packer.conv(["conv_post"])
        self._spectra_margin = packer.columns_before(source_stride(config, 0))
        self._frames_margin = Synthesis(config, device=rows.device).num_tail_frames
        self.convolve = Convolutions(cuda, rows)
        num_side_streams = len(self.stages) if cuda.has_side_streams and rows.device.type == "cuda" else 0
        self._side = SideStreams(num_side_streams, device=rows.device, priority=priority)

    @property
    def specs(self) -> list[BufferSpec]:
        (margin,) = self._post.margins
        post = BufferSpec(
            "post",
            self._post.channels,
            self._dtype,
            self._spectra_per_frame,
            1,
            margin,
            tails=self._post.tails,
            num_ahead=self._post.num_ahead,
        )
        return [*(spec for stage in self.stages for spec in stage.specs), post]

    def prepare(self, space: Workspace) -> None:
        """There is nothing to prepare."""

    def begin(self, space: Workspace) -> None:
        self._side.fork(0, partial(self.enter, space))

    def finish(self, space: Workspace) -> None:
        for number in range(1, len(self.stages)):
            self._side.fork(number, partial(self.excite, space, number))
        self.excite(space, 0)
        for number, stage in enumerate(self.stages):
            if number > 0:
                stage.upsample(self.convolve, space)
            self._side.join(number)
            self.run_stage(space, number)
        self.leave(space)

    def enter(self, space: Workspace) -> None:
        first = self.stages[0]
        epilogue = Epilogue(active=first.input(space), leaky_slope=self._config.leaky_relu_slope)
        (margin,) = self._pre.margins  # of one that looks to the left: its lookahead makes up for it
        self.convolve.run(space.views["mel"], self._pre, Columns(1), space.num_frames, epilogue, origin=margin)
        first.upsample(self.convolve, space)

    def excite(self, space: Workspace, number: int) -> None:
        self.stages[number].excite(self.convolve, space, self._spectra_margin)

    def run_stage(self, space: Workspace, number: int) -> None:
        stage = self.stages[number]
        if stage.is_last:
            (margin,) = self._post.margins
            following, slope = space.views["post"][:, :, margin:], POST_SLOPE
        else:
            following, slope = self.stages[number + 1].input(space), self._config.leaky_relu_slope
        stage.filter(self.convolve, space, self._rows, following, slope)

    def leave(self, space: Workspace) -> None:
        (margin,) = self._post.margins
        frames = space.views["frames"][:, :, self._frames_margin :]
        columns = Columns(self._spectra_per_frame, 1)
        self.convolve.run(
            space.views["post"], self._post, columns, space.num_frames, Epilogue(raw=frames), origin=margin
        )


class SideStreams:
    """CUDA streams beside the current one, for branches that meet again; they become branches of a captured graph."""

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
        """All that the current stream is given next waits for that work."""
        if self._streams:
            torch.cuda.current_stream().wait_stream(self._streams[number])
