"""One call of the vocoder on CUDA: gather, excite, filter, synthesise, keep the tails. Owns memory, but no stream.

The same computation as network.VocoderNetwork, laid out for few launches; every shape is the bucket's, every number of
a stream comes from the table of rows, and nothing waits for the device, so a call is one CUDA graph.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.token2wav.vocoder.cuda import rows as row_fields
from voicegate.engine.token2wav.vocoder.cuda.buffers import BufferSpec, Memory, Workspace
from voicegate.engine.token2wav.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.token2wav.vocoder.cuda.convolutions import Columns, Convolutions, Epilogue
from voicegate.engine.token2wav.vocoder.cuda.packing import Packer
from voicegate.engine.token2wav.vocoder.cuda.pitch import PitchBranch
from voicegate.engine.token2wav.vocoder.cuda.pitch_kernels import gather_mel_kernel
from voicegate.engine.token2wav.vocoder.cuda.side_streams import SideStreams
from voicegate.engine.token2wav.vocoder.cuda.spectrum_kernels import analysis_kernel, synthesis_kernel
from voicegate.engine.token2wav.vocoder.cuda.stage import CudaStage
from voicegate.engine.token2wav.vocoder.cuda.state_kernels import WORDS_PER_PIECE, load_tails_kernel, save_tails_kernel
from voicegate.engine.token2wav.vocoder.network import POST_SLOPE
from voicegate.engine.token2wav.vocoder.stft import Analysis, Synthesis
from voicegate.engine.token2wav.vocoder.weights import source_stride

SPECTRUM_COLUMNS = 64  # per program of the two transforms


class CudaNetwork:
    def __init__(
        self,
        config: VocoderConfig,
        weights: Mapping[str, torch.Tensor],
        noise: torch.Tensor,
        cuda: VocoderCudaConfig,
        *,
        max_streams: int,
        device: torch.device,
        priority: int = 0,
    ) -> None:
        """`noise`: one number a sample of the longest utterance and of the frame after it.

        `priority`: CUDA's, of the stream that calls run on.
        """
        self._config = config
        self._noise = noise
        self._precision = PRECISIONS[cuda.precision]
        self._num_bins = config.stft_size // 2 + 1
        self._spectra_per_frame = units.SAMPLES_PER_FRAME // config.stft_hop
        self._look_right = config.look_right_frames
        packer = Packer(weights, self._precision)
        self._mel_channels = packer.channels(units.NUM_MELS)
        self._spectrum_channels = packer.channels(config.stft_size + 2)
        self.pitch = PitchBranch(config, weights, max_batch=cuda.max_batch, max_frames=cuda.max_frames, device=device)
        self._pre = packer.conv(["conv_pre"])
        self.stages = [CudaStage(config, stage, packer, cuda) for stage in range(len(config.upsample_rates))]
        self._post = packer.conv(["conv_post"])
        self._spectra_margin = source_stride(config, 0) - 1
        self._analysis_basis = Analysis(config, device=device).padded_basis(self._spectrum_channels)
        synthesis = Synthesis(config, device=device)
        self._synthesis_basis = synthesis.block_bases()
        self._end_gains = synthesis.end_gains()
        self._spectra_tail = synthesis.num_tail_frames
        self._memory = Memory(
            self._specs(),
            max_streams=max_streams,
            max_batch=cuda.max_batch,
            max_frames=cuda.max_frames,
            device=device,
        )
        shape = (cuda.max_batch, row_fields.NUM_FIELDS)
        self.rows = torch.zeros(shape, dtype=torch.int64, device=device)
        self.convolve = Convolutions(cuda, self.rows)
        num_side_streams = len(self.stages) if cuda.has_side_streams and device.type == "cuda" else 0
        self._side = SideStreams(num_side_streams, priority=priority)
        num_samples = cuda.max_frames * units.SAMPLES_PER_FRAME + config.stft_hop
        self._samples = torch.zeros(cuda.max_batch * num_samples, device=device)

    def _specs(self) -> list[BufferSpec]:
        dtype = self._precision.dtype
        per_frame = self._spectra_per_frame
        (post_tail,) = self._post.tails
        return [
            *self.pitch.specs,
            BufferSpec("mel", self._mel_channels, dtype, 1, self._look_right),
            BufferSpec(
                "spectra",
                self._spectrum_channels,
                dtype,
                per_frame,
                1,
                self._spectra_margin,
                tails=(self._spectra_margin,),
            ),
            *(spec for stage in self.stages for spec in stage.specs),
            BufferSpec("post", self._post.channels, dtype, per_frame, 1, post_tail, tails=(post_tail,)),
            BufferSpec(
                "frames",
                self._post.num_outputs,
                torch.float32,
                per_frame,
                1,
                self._spectra_tail,
                tails=(self._spectra_tail,),
            ),
        ]

    @property
    def state(self) -> torch.Tensor:
        """[slots + 1, words] int32: what streams carry from call to call; the last row is nobody's."""
        return self._memory.state

    @property
    def num_bytes(self) -> int:
        """Of the buffers and the slots."""
        return self._memory.arena.nbytes + self._memory.state.nbytes

    def workspace(self, num_streams: int, num_frames: int) -> Workspace:
        return self._memory.workspace(num_streams, num_frames)

    def samples(self, space: Workspace) -> torch.Tensor:
        """[streams, 480 frames + 4] float32, as network.VocoderNetwork.advance gives them; the next call's too."""
        num_samples = space.num_frames * units.SAMPLES_PER_FRAME + self._config.stft_hop
        return self._samples[: space.num_streams * num_samples].view(space.num_streams, num_samples)

    def run(self, space: Workspace) -> None:
        """The rows of `self.rows` -> `samples`, and the slots moved on."""
        self.load_tails(space)
        self.gather(space)
        self._side.fork(0, partial(self.enter_filter, space))
        self.pitch.run(space, self.rows)
        self.analyse(space)
        for number in range(1, len(self.stages)):
            self._side.fork(number, partial(self.excite, space, number))
        self.excite(space, 0)
        for number, stage in enumerate(self.stages):
            if number > 0:
                stage.upsample(self.convolve, space)
            self._side.join(number)
            self.filter_stage(space, number)
        self.leave_filter(space)
        self.synthesise(space)
        self.save_tails(space)

    def load_tails(self, space: Workspace) -> None:
        self._copy_tails(load_tails_kernel, space, space.num_loaded_pieces)

    def save_tails(self, space: Workspace) -> None:
        self._copy_tails(save_tails_kernel, space, len(space.pieces))

    def _copy_tails(self, kernel: Any, space: Workspace, num_pieces: int) -> None:
        state = self._memory.state
        kernel[(num_pieces, space.num_streams)](
            state,
            self._memory.arena,
            space.pieces,
            self.rows,
            state.stride(0),
            BLOCK_WORDS=WORDS_PER_PIECE,
            num_warps=4,
        )

    def gather(self, space: Workspace) -> None:
        exact, operand = space.views["mel.exact"], space.views["mel"]
        state = self._memory.state.view(torch.float64)
        gather_mel_kernel[(exact.shape[2], space.num_streams)](
            state,
            exact,
            operand,
            self.rows,
            state.stride(0),
            self._memory.state_start("mel.exact") // 2,
            exact.stride(1),
            operand.stride(1),
            NUM_BANDS=units.NUM_MELS,
            CHANNELS=self._mel_channels,
            ROUND_TF32=self._precision.is_rounded_to_tf32,
            num_warps=1,
        )

    def enter_filter(self, space: Workspace) -> None:
        first = self.stages[0]
        epilogue = Epilogue(active=first.input(space), leaky_slope=self._config.leaky_relu_slope)
        self.convolve.run(
            space.views["mel"], self._pre, Columns(1), space.num_frames, epilogue, origin=self._look_right
        )
        first.upsample(self.convolve, space)

    def analyse(self, space: Workspace) -> None:
        levels, spectra = space.views["levels"], space.views["spectra"][:, :, self._spectra_margin :]
        analysis_kernel[(self._num_spectrum_tiles(space), space.num_streams)](
            levels,
            self._noise,
            self._analysis_basis,
            spectra,
            self.rows,
            levels.stride(1),
            spectra.stride(1),
            units.SAMPLES_PER_FRAME,
            self._spectra_per_frame,
            CHANNELS=self._spectrum_channels,
            BLOCK_M=SPECTRUM_COLUMNS,
            ROUND_TF32=self._precision.is_rounded_to_tf32,
            num_warps=4,
        )

    def excite(self, space: Workspace, number: int) -> None:
        self.stages[number].excite(self.convolve, space, self._spectra_margin)

    def filter_stage(self, space: Workspace, number: int) -> None:
        stage = self.stages[number]
        if stage.is_last:
            (post_tail,) = self._post.tails
            following, slope = space.views["post"][:, :, post_tail:], POST_SLOPE
        else:
            following, slope = self.stages[number + 1].input(space), self._config.leaky_relu_slope
        stage.filter(self.convolve, space, self.rows, following, slope)

    def leave_filter(self, space: Workspace) -> None:
        (post_tail,) = self._post.tails
        post = space.views["post"]
        frames = space.views["frames"][:, :, self._spectra_tail :]
        columns = Columns(self._spectra_per_frame, 1)
        self.convolve.run(post, self._post, columns, space.num_frames, Epilogue(raw=frames), origin=post_tail)

    def synthesise(self, space: Workspace) -> None:
        frames, samples = space.views["frames"], self.samples(space)
        synthesis_kernel[(self._num_spectrum_tiles(space), space.num_streams)](
            frames,
            self._synthesis_basis,
            self._end_gains,
            samples,
            self.rows,
            frames.stride(1),
            samples.stride(0),
            self._spectra_per_frame,
            self._config.audio_limit,
            CHANNELS=self._post.num_outputs,
            NUM_BINS=self._num_bins,
            BLOCK_M=SPECTRUM_COLUMNS,
            IS_FAST=self._precision.has_fast_sine,
            num_warps=4,
        )

    def _num_spectrum_tiles(self, space: Workspace) -> int:
        return int(triton.cdiv(space.num_frames * self._spectra_per_frame + 1, SPECTRUM_COLUMNS))
