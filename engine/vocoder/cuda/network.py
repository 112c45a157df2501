"""One call of the vocoder on CUDA: gather, excite, filter, synthesise, keep the tails. Owns memory, but no stream.

The same computation as network.VocoderNetwork, laid out for few launches; every shape is the bucket's, every number of
a stream comes from the table of rows, and nothing waits for the device, so a call is one CUDA graph. What the filter
between spectra and spectra is computed with, it does not know.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import triton

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.cuda import rows as row_fields
from voicegate.engine.vocoder.cuda.buffers import BufferSpec, Memory, Workspace
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.packing import Packer
from voicegate.engine.vocoder.cuda.pitch import PitchBranch
from voicegate.engine.vocoder.cuda.pitch_kernels import gather_mel_kernel
from voicegate.engine.vocoder.cuda.spectrum_kernels import analysis_kernel, synthesis_kernel
from voicegate.engine.vocoder.cuda.state_kernels import WORDS_PER_PIECE, load_tails_kernel, save_tails_kernel
from voicegate.engine.vocoder.stft import Analysis, Synthesis
from voicegate.engine.vocoder.weights import source_stride

SPECTRUM_COLUMNS = 64  # per program of the two transforms


class NetworkFilter(Protocol):
    """Computes the filter, from a call's mel frames and spectra to its frames.

    Mel frames, and spectra behind their margin, lie in the workspace's `mel` and `spectra`; what comes out belongs into
    `frames`, behind its own margin.

    Called in a capture: it launches on the current CUDA stream, allocates nothing that lasts and waits for nothing.

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
        filter_of: Callable[[torch.Tensor], NetworkFilter],
    ) -> None:
        """`noise`: one number a sample of the longest utterance and of the frame after it.

        `filter_of` makes the filter, given the table of rows.
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
        self._spectra_margin = source_stride(config, 0) - 1
        self._analysis_basis = Analysis(config, device=device).padded_basis(self._spectrum_channels)
        synthesis = Synthesis(config, device=device)
        self._synthesis_basis = synthesis.block_bases()
        self._end_gains = synthesis.end_gains()
        self._spectra_tail = synthesis.num_tail_frames
        self.rows = torch.zeros(cuda.max_batch, row_fields.NUM_FIELDS, dtype=torch.int64, device=device)
        self.filter = filter_of(self.rows)
        self._memory = Memory(
            self._specs(),
            max_streams=max_streams,
            max_batch=cuda.max_batch,
            max_frames=cuda.max_frames,
            device=device,
        )
        num_samples = cuda.max_frames * units.SAMPLES_PER_FRAME + config.stft_hop
        self._samples = torch.zeros(cuda.max_batch * num_samples, device=device)

    def _specs(self) -> list[BufferSpec]:
        dtype = self._precision.dtype
        per_frame = self._spectra_per_frame
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
            *self.filter.specs,
            BufferSpec(
                "frames",
                self._spectrum_channels,
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
        """Bytes of the buffers and the slots."""
        return self._memory.arena.nbytes + self._memory.state.nbytes

    def workspace(self, num_streams: int, num_frames: int) -> Workspace:
        space = self._memory.workspace(num_streams, num_frames)
        self.filter.prepare(space)
        return space

    def samples(self, space: Workspace) -> torch.Tensor:
        """[streams, 480 frames + 4] float32, as network.VocoderNetwork.advance gives them; the next call's too."""
        num_samples = space.num_frames * units.SAMPLES_PER_FRAME + self._config.stft_hop
        return self._samples[: space.num_streams * num_samples].view(space.num_streams, num_samples)

    def run(self, space: Workspace) -> None:
        """The rows of `self.rows` -> `samples`, and the slots moved on."""
        self.load_tails(space)
        self.gather(space)
        self.filter.begin(space)
        self.pitch.run(space, self.rows)
        self.analyse(space)
        self.filter.finish(space)
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
            CHANNELS=self._spectrum_channels,
            NUM_BINS=self._num_bins,
            BLOCK_M=SPECTRUM_COLUMNS,
            IS_FAST=self._precision.has_fast_sine,
            num_warps=4,
        )

    def _num_spectrum_tiles(self, space: Workspace) -> int:
        return int(triton.cdiv(space.num_frames * self._spectra_per_frame + 1, SPECTRUM_COLUMNS))
